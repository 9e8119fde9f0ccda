// The error that ends the program, and its exit codes.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

namespace k8sdds {

struct Failure : std::runtime_error {
    Failure(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
    int exit_code;
};
constexpr int kUsage = 2, kSystem = 4;

// Runs a program, and prints the error that ends it. Returns its exit code.
template <typename Run>
int run_program(const char* name, Run run) {
    try {
        return run();
    } catch (const Failure& failure) {
        std::fprintf(stderr, "%s: %s\n", name, failure.what());
        return failure.exit_code;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", name, error.what());
        return kSystem;
    }
}

inline std::string errno_text() { return std::strerror(errno); }

}  // namespace k8sdds
