// JSON values for the reports of perftest and the supervisor. Never used while samples are measured.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "json_fwd.h"

namespace k8sdds {

// Returns the text of a document. Bytes that are not valid UTF-8 become U+FFFD, so the text is always valid.
// indent -1 writes one line; ascii_only escapes every other character.
inline std::string json_text(const Json& document, int indent = -1, bool ascii_only = false) {
    return document.dump(indent, ' ', ascii_only, Json::error_handler_t::replace);
}

// Rounds to a number of decimals; null if the value is not finite.
inline Json json_rounded(double value, int decimals) {
    if (!std::isfinite(value)) return nullptr;
    char text[400];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return std::strtod(text, nullptr);
}

inline Json json_seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

// The empty string means "unknown".
inline Json json_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

template <typename T>
Json json_or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

inline Json json_seconds_or_null(const std::optional<std::int64_t>& nanoseconds) {
    return nanoseconds ? json_seconds(*nanoseconds) : Json(nullptr);
}

}  // namespace k8sdds
