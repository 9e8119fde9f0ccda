#include "state.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace k8sdds {
namespace {

// Signals the start ('M') or end ('E') of the measured interval to the supervisor, through the file descriptor in
// K8SDDS_PHASE_FD.
void signal_phase(char phase) {
    const char* text = std::getenv("K8SDDS_PHASE_FD");
    if (!text) return;
    char* end = nullptr;
    const long fd = std::strtol(text, &end, 10);
    if (end == text || *end || fd < 0 || ::write(static_cast<int>(fd), &phase, 1) != 1)
        log_line("cannot signal the phase to the file descriptor K8SDDS_PHASE_FD=%s", text);
}

}  // namespace

double process_cpu_s() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void log_line(const char* format, ...) {
    constexpr size_t max_bytes = 4000;
    char text[max_bytes + 2];                              // one more byte than one_line() keeps
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "k8sdds-perftest: %s\n", one_line(text, max_bytes).c_str());
}

std::string one_line(std::string text, size_t max_bytes) {
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
    if (text.size() > max_bytes) {
        size_t end = max_bytes;
        while (end && continues(text[end])) --end;
        text.resize(end);
    }
    for (char& c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    return text;
}

bool State::advance(Stage from, Stage to) {
    if (!stage.compare_exchange_strong(from, to)) return false;
    wake();
    return true;
}

void State::begin_measured(int64_t now) {
    if (first_ns.load()) return;
    timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    first_epoch_s.store(wall.tv_sec + wall.tv_nsec / 1e9);
    cpu_begin_ = process_cpu_s();
    last_ns.store(now);
    first_ns.store(now);
    signal_phase('M');
}

void State::end_measured(int64_t now) {
    if (!first_ns.load() || end_ns.load()) return;
    cpu_end_ = process_cpu_s();
    end_ns.store(now);
    signal_phase('E');
}

double State::measured_s() const {
    const int64_t first = first_ns.load();
    if (!first) return 0;
    const int64_t end = end_ns.load();
    return ((end ? end : now_ns()) - first) / 1e9;
}

double State::cpu_s() const {
    if (!first_ns.load()) return 0;
    return (end_ns.load() ? cpu_end_ : process_cpu_s()) - cpu_begin_;
}

void State::stop(int code, const std::string& reason) {
    {
        std::lock_guard<std::mutex> lock(exit_status_mutex_);
        if (stopped.load()) return;
        exit_status_ = {code, reason};
        stopped.store(true);
        stage.store(Stage::over);                          // ends the loops over samples
    }
    wake();
    changed.notify_all();
}

ExitStatus State::exit_status() const {
    std::lock_guard<std::mutex> lock(exit_status_mutex_);
    return exit_status_;
}

}  // namespace k8sdds
