#include "json.h"

#include <cmath>
#include <cstdio>

namespace k8sdds {

namespace {

// The length of the valid UTF-8 sequence at the start of `s`; 0 when there is none.
std::size_t utf8_length(std::string_view s) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
    const auto continues = [&](std::size_t i, unsigned low, unsigned high) {
        return i < s.size() && byte(i) >= low && byte(i) <= high;
    };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return continues(1, 0x80, 0xBF) ? 2 : 0;
    if (lead >= 0xE0 && lead <= 0xEF) {
        const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;    // no overlong forms
        const unsigned high = lead == 0xED ? 0x9F : 0xBF;   // no surrogates
        return continues(1, low, high) && continues(2, 0x80, 0xBF) ? 3 : 0;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
        const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;  // up to U+10FFFF
        return continues(1, low, high) && continues(2, 0x80, 0xBF) && continues(3, 0x80, 0xBF) ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string json_string(std::string_view bytes) {
    std::string out = "\"";
    while (!bytes.empty()) {
        const auto c = static_cast<unsigned char>(bytes[0]);
        std::size_t length = utf8_length(bytes);
        if (length == 0) {
            out += "\\ufffd";
            length = 1;
        } else if (c == '"' || c == '\\') {
            out += '\\';
            out += bytes[0];
        } else if (c < 0x20 || c == 0x7F) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
            out += escaped;
        } else {
            out += bytes.substr(0, length);
        }
        bytes.remove_prefix(length);
    }
    return out += '"';
}

void Json::begin(std::string_view key) {
    if (!first_) out_ += in_array_ ? ", " : ",";
    if (!in_array_ && depth_ > 0) {
        out_ += '\n';
        out_.append(static_cast<std::size_t>(depth_) * 2, ' ');
    }
    if (!key.empty() || (!in_array_ && depth_ > 0)) out_ += json_string(key) + ": ";
    first_ = false;
}

void Json::open(std::string_view key, char bracket) {
    begin(key);
    out_ += bracket;
    ++depth_;
    first_ = true;
    in_array_ = bracket == '[';
}

void Json::close(char bracket) {
    --depth_;
    if (!in_array_ && !first_) {
        out_ += '\n';
        out_.append(static_cast<std::size_t>(depth_) * 2, ' ');
    }
    out_ += bracket;
    first_ = false;
    in_array_ = false;
}

Json& Json::open_object(std::string_view key) { return open(key, '{'), *this; }
Json& Json::close_object() { return close('}'), *this; }
Json& Json::open_array(std::string_view key) { return open(key, '['), *this; }
Json& Json::close_array() { return close(']'), *this; }

Json& Json::text(std::string_view key, std::string_view value) {
    begin(key);
    out_ += json_string(value);
    return *this;
}

Json& Json::text_or_null(std::string_view key, const std::optional<std::string>& value) {
    return value ? text(key, *value) : null(key);
}

Json& Json::integer(std::string_view key, std::int64_t value) {
    begin(key);
    out_ += std::to_string(value);
    return *this;
}

Json& Json::integer_or_null(std::string_view key, const std::optional<std::int64_t>& value) {
    return value ? integer(key, *value) : null(key);
}

Json& Json::seconds(std::string_view key, std::int64_t nanoseconds) {
    begin(key);
    const std::int64_t magnitude = nanoseconds < 0 ? -nanoseconds : nanoseconds;
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%s%lld.%09lld", nanoseconds < 0 ? "-" : "",
                  static_cast<long long>(magnitude / 1'000'000'000),
                  static_cast<long long>(magnitude % 1'000'000'000));
    out_ += buffer;
    return *this;
}

Json& Json::seconds_or_null(std::string_view key, const std::optional<std::int64_t>& nanoseconds) {
    return nanoseconds ? seconds(key, *nanoseconds) : null(key);
}

Json& Json::number(std::string_view key, double value) {
    if (!std::isfinite(value)) return null(key);
    begin(key);
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.12g", value);
    out_ += buffer;
    return *this;
}

Json& Json::boolean(std::string_view key, bool value) {
    begin(key);
    out_ += value ? "true" : "false";
    return *this;
}

Json& Json::null(std::string_view key) {
    begin(key);
    out_ += "null";
    return *this;
}

}  // namespace k8sdds
