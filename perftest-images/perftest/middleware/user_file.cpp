#include "user_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace k8sdds {
namespace {

std::string read_all(int fd, std::string& text, size_t max_bytes) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return std::strerror(errno);
    if (!S_ISREG(status.st_mode)) return "not a regular file; give another one";
    text.resize(max_bytes + 1);
    size_t length = 0;
    while (length < text.size()) {
        const ssize_t n = read(fd, &text[length], text.size() - length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return std::strerror(errno);
        if (n == 0) break;
        length += static_cast<size_t>(n);
    }
    text.resize(length);
    return length > max_bytes ? "is longer than " + std::to_string(max_bytes) + " bytes; shorten it" : "";
}

}  // namespace

std::string read_text(const std::string& path, std::string& text, size_t max_bytes) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);   // a FIFO would block
    if (fd < 0) return std::string(std::strerror(errno)) + "; give another file";
    const std::string unreadable = read_all(fd, text, max_bytes);
    close(fd);
    return unreadable;
}

}  // namespace k8sdds
