// Keeps the beginning and the end of what a participant writes to standard error.
#pragma once

#include <cstdint>
#include <string>

#include "support.h"

namespace k8sdds {

// A participant that others flood with malformed packets logs tens of megabytes per second.
constexpr std::size_t kLogStart = 1 << 20, kLogEnd = 4096;  // bytes

class Log {
public:
    Log(Fd source, Fd file) : source_(std::move(source)), file_(std::move(file)) {}

    int fd() const { return source_.get(); }  // -1: all writers have closed it
    void read();                              // what is there, without waiting
    void finish();                            // reads the rest, and writes what was kept of the end
    std::int64_t dropped_bytes() const { return dropped_; }

private:
    void keep(std::string_view text);

    Fd source_, file_;
    std::size_t written_ = 0;
    std::int64_t dropped_ = 0;
    std::string end_;
};

}  // namespace k8sdds
