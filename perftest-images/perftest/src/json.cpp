#include "json.h"

#include <cmath>
#include <cstdio>

namespace k8sdds {

std::string json_quote(const std::string& text) {
    std::string quoted = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += static_cast<char>(c);
        } else if (c < 0x20 || c >= 0x7f) {   // arguments may hold any byte; escaped as Latin-1 they stay valid
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", c);
            quoted += escape;
        } else {
            quoted += static_cast<char>(c);
        }
    }
    return quoted + "\"";
}

std::string json_number(double value, int decimals) {
    if (!std::isfinite(value)) return "null";
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

JsonObject& JsonObject::raw(const std::string& key, const std::string& value) {
    if (!body_.empty()) body_ += ",";
    body_ += json_quote(key) + ":" + value;
    return *this;
}

}  // namespace k8sdds
