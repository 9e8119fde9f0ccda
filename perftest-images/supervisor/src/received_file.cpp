#include "received_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include "support.h"

namespace k8sdds {

namespace {

constexpr std::int64_t kMaxFileBytes = 64 << 20;
constexpr std::size_t kMaxPath = 4000;

// Returns the text up to the next space, and removes both.
std::string_view word(std::string_view& text) {
    const auto end = text.find(' ');
    const auto result = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return result;
}

}  // namespace

ReceivedFile parse_received_file(const std::string& line) {
    std::string_view rest = line;
    const auto command = word(rest), mode = word(rest);
    const auto size = to_integer(word(rest));
    const bool valid = command == "file" && (mode == "0600" || mode == "0644") && size && *size >= 0 &&
                       *size <= kMaxFileBytes && starts_with(rest, "/") && rest.back() != '/' &&
                       rest.size() <= kMaxPath && rest.find('\0') == std::string_view::npos;
    if (!valid) throw Failure(kUsage, "not a file for a participant: " + line.substr(0, kMaxPath));
    return {mode == "0600", static_cast<std::size_t>(*size), std::string(rest)};
}

void save(const ReceivedFile& file, const std::string& content) {
    const auto slash = file.path.rfind('/');
    if (slash > 0) create_directory(file.path.substr(0, slash), file.secret);
    const std::string temporary = file.path + ".new";
    unlink(temporary.c_str());
    Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file.secret ? 0600 : 0644));
    if (!fd) throw Failure(kPrerequisite, "cannot write " + file.path + ": " + errno_text());
    write_all(fd.get(), content);
    if (rename(temporary.c_str(), file.path.c_str()) != 0)
        throw Failure(kPrerequisite, "cannot write " + file.path + ": " + errno_text());
}

void create_directory(const std::string& name, bool secret) {
    struct stat status {};
    if (stat(name.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return;
    const auto slash = name.rfind('/');
    if (slash != std::string::npos && slash > 0) create_directory(name.substr(0, slash), false);
    if (mkdir(name.c_str(), secret ? 0700 : 0755) == 0) {
        chmod(name.c_str(), secret ? 0700 : 0755);  // whatever the umask
        return;
    }
    const int reason = errno;  // another process may have created it
    if (reason == EEXIST && stat(name.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return;
    errno = reason;
    throw Failure(kPrerequisite, "cannot create the directory " + name + ": " + errno_text());
}

void write_all(int fd, std::string_view data) {
    while (!data.empty()) {
        const ssize_t n = write(fd, data.data(), data.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) throw Failure(kPrerequisite, "cannot write: " + errno_text());
        data.remove_prefix(static_cast<std::size_t>(n));
    }
}

}  // namespace k8sdds
