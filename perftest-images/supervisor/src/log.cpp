#include "log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace k8sdds {

namespace {

void write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;  // the disk is full, as it could be for a participant that writes the file itself
        text.remove_prefix(static_cast<std::size_t>(n));
    }
}

}  // namespace

void Log::read() {
    std::array<char, 65536> buffer;
    // A participant that writes all the time must not keep the supervisor from its timers.
    for (int times = 0; source_ && times < 16; ++times) {
        const ssize_t n = ::read(source_.get(), buffer.data(), buffer.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return;
        if (n == 0) source_.close();
        keep({buffer.data(), static_cast<std::size_t>(n)});
    }
}

void Log::keep(std::string_view text) {
    const std::size_t start = std::min(text.size(), kLogStart - written_);
    write_all(file_.get(), text.substr(0, start));
    written_ += start;
    end_ += text.substr(start);
    if (end_.size() <= kLogEnd) return;
    dropped_ += static_cast<std::int64_t>(end_.size() - kLogEnd);
    end_.erase(0, end_.size() - kLogEnd);
}

void Log::finish() {
    read();
    if (dropped_)
        write_all(file_.get(), "\n[k8sdds-supervisor: " + std::to_string(dropped_) + " bytes are left out here]\n");
    write_all(file_.get(), end_);
}

}  // namespace k8sdds
