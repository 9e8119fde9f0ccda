// The state that the threads of a run share: its stage, its exit status, and the counters that the measuring thread
// writes and the housekeeping thread reads.
#pragma once

#include <algorithm>
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
// Returns the time from one point to another. A time that another process sent may be any number.
inline int64_t elapsed_ns(int64_t from, int64_t to) {
    return static_cast<int64_t>(static_cast<uint64_t>(to) - static_cast<uint64_t>(from));
}
constexpr int64_t second_ns = 1'000'000'000;
inline int64_t to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// Returns how long a sample may take before its sender counts as lost: the timeout, plus the sample's transfer at 1
// MB/s.
inline int64_t progress_timeout_ns(double seconds, uint64_t sample_bytes) {
    return to_ns(seconds) + static_cast<int64_t>(sample_bytes) * 1000;
}

// Returns how long a reliable sender that has ended may make no progress before it counts as complete.
inline int64_t quiet_ns(double peer_timeout_s, uint64_t sample_bytes) {
    return progress_timeout_ns(std::max(peer_timeout_s / 2, 0.1), sample_bytes);
}

// How long samples that are behind their schedule are still sent after its end.
constexpr int64_t schedule_grace_ns = second_ns;

constexpr int64_t timeline_row_ns = 100'000'000, sparse_timeline_row_ns = 1'000'000'000;

enum class Stage : int { waiting, warm_up, measured, over };

struct ExitStatus {
    int code = exit_done;
    std::string reason = "done";
};

class State {
public:
    // Read for each sample. advance() and stop() change the stage; `stopped` is set once.
    std::atomic<Stage> stage{Stage::waiting};
    std::atomic<bool> stopped{false};

    // Written only by the measuring thread, with relaxed stores; on a cache line of their own.
    alignas(64) std::atomic<uint64_t> samples{0};          // measured samples: sent, or received without duplicates
    std::atomic<uint64_t> varying_bytes{0};                // of these samples, if their lengths vary
    std::atomic<int64_t> last_ns{0};
    std::atomic<int64_t> spin_ns{0};                       // that the pacer spun in the measured interval

    // The handshake: from the creation of the own participant to the last match of a data endpoint.
    std::atomic<int64_t> created_ns{0}, matched_ns{0};

    // The measured interval; 0 until it begins or ends.
    std::atomic<int64_t> first_ns{0}, end_ns{0};
    std::atomic<double> first_epoch_s{0};
    std::atomic<int64_t> stage_until_ns{INT64_MAX};        // when the housekeeping thread advances the stage
    std::atomic<uint64_t> sample_bytes{0};                 // length of a sample; of the longest if lengths vary
    std::atomic<bool> lengths_vary{false};                 // set before the first measured sample
    std::atomic<int64_t> row_ns{timeline_row_ns};          // period of the timeline

    // Chooses the period: a wake-up of the housekeeping thread can delay a sample, which only a throughput test averages
    // out.
    void measure_delays() { row_ns.store(sparse_timeline_row_ns); }

    // Enters a stage if the other one is current, and ends sleep_until(). Returns whether it did.
    bool advance(Stage from, Stage to);
    // Returns at the time `until`, or as soon as the stage is not `current`, the run was stopped or the condition
    // holds, which wake() makes it check.
    template <typename Condition>
    void sleep_until(int64_t until_ns, Stage current, Condition condition) {
        const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(until_ns)};  // CLOCK_MONOTONIC too
        std::unique_lock<std::mutex> lock(sleep_mutex_);
        awake_.wait_until(lock, until, [&] { return stage.load() != current || stopped.load() || condition(); });
    }
    void wake() {
        { std::lock_guard<std::mutex> lock(sleep_mutex_); }
        awake_.notify_all();
    }

    // Both take effect once: they record clock and CPU time and signal the phase to the supervisor.
    void begin_measured(int64_t now);
    void end_measured(int64_t now);
    double measured_s() const;
    // Returns the bytes of this number of measured samples, with their overhead. If lengths vary, those of a sample that
    // is just being counted can be in it.
    uint64_t bytes_of(uint64_t measured) const {
        return lengths_vary.load() ? varying_bytes.load() : measured * sample_bytes.load();
    }
    double cpu_s() const;                                  // of the process within the measured interval

    // Ends the run. The first call decides code and reason.
    void stop(int code, const std::string& reason);
    ExitStatus exit_status() const;

    // Guards what announcements change; `changed` is notified after each of them.
    mutable std::mutex mutex;
    std::condition_variable changed;

    // Waits until the condition holds, which is evaluated under the mutex. Returns false if the run was stopped or
    // the deadline has passed.
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
    std::mutex sleep_mutex_;                               // so that a sleep cannot begin between a change and wake()
    std::condition_variable awake_;
    mutable std::mutex exit_status_mutex_;
    ExitStatus exit_status_;
};

double process_cpu_s();
void log_line(const char* format, ...) __attribute__((format(printf, 1, 2)));   // on standard error

// Returns a text as one line for a terminal: without control characters, and shortened at a character of UTF-8.
std::string one_line(std::string text, size_t max_bytes);

}  // namespace k8sdds
