// The error that ends the program, and its exit codes.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace k8sdds {

struct Failure : std::runtime_error {
    Failure(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
    int exit_code;
};
constexpr int kUsage = 2, kSystem = 4;

inline std::string errno_text() { return std::strerror(errno); }

}  // namespace k8sdds
