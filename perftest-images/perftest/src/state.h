// What the threads of one run share: where the run stands, why it ends, and the counters that the hot
// thread writes and the service thread reads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <time.h>

namespace k8sdds {

constexpr int exit_done = 0, exit_usage = 2, exit_unmatched = 3, exit_peer_lost = 4, exit_no_samples = 5,
              exit_middleware = 6;

inline int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}
inline int64_t to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// How long no sample may arrive before its sender counts as lost: a large one takes its time, with 1 MB/s as
// the slowest that is waited for.
inline int64_t patience_ns(double seconds, uint64_t sample_bytes) {
    return to_ns(seconds) + static_cast<int64_t>(sample_bytes) * 1000;
}

enum class Stage : int { waiting, warm_up, measured, over };

struct Ending {
    int code = exit_done;
    std::string reason = "done";
};

class State {
public:
    // Hot: read for each sample.
    std::atomic<Stage> stage{Stage::waiting};
    std::atomic<bool> stopped{false};

    // Written by the hot thread with plain relaxed stores.
    alignas(64) std::atomic<uint64_t> samples{0};          // measured: sent, or received without duplicates
    std::atomic<int64_t> last_ns{0};

    // The handshake: from the participant's creation to the last match of a data endpoint.
    std::atomic<int64_t> created_ns{0}, matched_ns{0};

    // The measured interval.
    std::atomic<int64_t> first_ns{0}, end_ns{0};
    std::atomic<double> first_epoch_s{0};
    std::atomic<int64_t> stage_until_ns{INT64_MAX};        // when the service thread moves the stage on
    std::atomic<uint64_t> sample_bytes{0};

    void begin_measured(int64_t now);                      // once: clock, CPU time, phase signal
    void end_measured(int64_t now);
    double measured_s() const;
    double cpu_s() const;                                  // of the process within the measured interval

    void stop(int code, const std::string& reason);        // the first reason stays
    Ending ending() const;

    // Protocol: guards what announcements change; notified with each of them.
    mutable std::mutex mutex;
    std::condition_variable changed;

    // Waits until the condition (evaluated under the mutex) holds; false: stopped or too late.
    template <typename Condition>
    bool wait(std::unique_lock<std::mutex>& lock, int64_t deadline_ns, Condition condition) {
        while (!condition()) {
            if (stopped.load()) return false;
            const int64_t left = deadline_ns - now_ns();
            if (left <= 0) return false;
            changed.wait_for(lock, std::chrono::nanoseconds(left < 20'000'000 ? left : 20'000'000));
        }
        return true;
    }

private:
    double cpu_begin_ = 0, cpu_end_ = 0;
    mutable std::mutex ending_mutex_;
    Ending ending_;
};

double process_cpu_s();
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));   // one line on stderr

}  // namespace k8sdds
