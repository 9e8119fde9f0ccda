// Writing JSON: values as text, and a document built in order.
#pragma once

#include <cstdint>
#include <string>

namespace k8sdds {

std::string json_quote(const std::string&);
std::string json_number(double, int decimals = 6);        // null where it is not finite
inline std::string json_number(uint64_t value) { return std::to_string(value); }
inline std::string json_number(int64_t value) { return std::to_string(value); }

class JsonObject {
public:
    JsonObject& raw(const std::string& key, const std::string& value);
    JsonObject& text(const std::string& key, const std::string& value) { return raw(key, json_quote(value)); }
    JsonObject& text_or_null(const std::string& key, const std::string& value) {
        return raw(key, value.empty() ? "null" : json_quote(value));
    }
    JsonObject& flag(const std::string& key, bool value) { return raw(key, value ? "true" : "false"); }
    JsonObject& integer(const std::string& key, int64_t value) { return raw(key, std::to_string(value)); }
    JsonObject& real(const std::string& key, double value, int decimals = 6) {
        return raw(key, json_number(value, decimals));
    }
    std::string str() const { return "{" + body_ + "}"; }

private:
    std::string body_;
};

}  // namespace k8sdds
