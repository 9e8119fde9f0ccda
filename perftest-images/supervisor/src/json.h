// Writes JSON, nothing else. Bytes that are not UTF-8 become U+FFFD, so the text is always valid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace k8sdds {

class Json {
public:
    Json& open_object(std::string_view key = {});
    Json& close_object();
    Json& open_array(std::string_view key = {});
    Json& close_array();

    // In arrays the key is left empty.
    Json& text(std::string_view key, std::string_view value);
    Json& text_or_null(std::string_view key, const std::optional<std::string>& value);
    Json& integer(std::string_view key, std::int64_t value);
    Json& integer_or_null(std::string_view key, const std::optional<std::int64_t>& value);
    Json& seconds(std::string_view key, std::int64_t nanoseconds);  // as 1.234567890
    Json& seconds_or_null(std::string_view key, const std::optional<std::int64_t>& nanoseconds);
    Json& number(std::string_view key, double value);
    Json& boolean(std::string_view key, bool value);
    Json& null(std::string_view key);

    const std::string& str() const { return out_; }

private:
    void begin(std::string_view key);
    void open(std::string_view key, char bracket);
    void close(char bracket);

    std::string out_;
    int depth_ = 0;
    bool first_ = true;
    bool in_array_ = false;  // arrays hold plain values here and stay on one line
};

std::string json_string(std::string_view bytes);  // quoted and escaped

}  // namespace k8sdds
