// The command line of k8sdds-transactions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace k8sdds {

constexpr std::size_t kMaxBytes = 1 << 20;

struct Failure : std::runtime_error {
    Failure(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
    int exit_code;
};
constexpr int kUsage = 2, kConnection = 3, kSystem = 4;

struct Options {
    bool client = false;
    bool udp = false;
    bool new_connections = false;  // one for each request
    std::string address;
    std::string port;
    std::size_t bytes = 1;         // of a request and of its response
    int connections = 1;           // at the same time, each with one request under way
    double warmup_s = 0, time_s = 0;
    std::string histogram_file;
};

Options parse_options(int argc, char** argv);  // throws Failure(kUsage)

}  // namespace k8sdds
