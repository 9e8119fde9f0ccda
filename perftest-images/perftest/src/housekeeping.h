// The housekeeping thread: signals, deadlines of the stages, the timeline, interval lines, liveliness, and the
// forced exit when the middleware blocks. It handles no samples.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "state.h"

namespace k8sdds {

struct TimelineRow {
    int64_t elapsed_ms;
    uint64_t samples, bytes;
};

// Work of the role that the housekeeping thread does.
struct PeriodicTasks {
    std::function<void()> assert_liveliness;
    std::function<void(int64_t)> check_peers;              // argument: now
    std::function<void()> interval;                        // each second of the measured interval
    std::function<void()> save;                            // right before the process kills itself
};

class Housekeeping {
public:
    Housekeeping(State& state, int64_t liveliness_period_ns)
        : state_(state), liveliness_period_(liveliness_period_ns) {}
    ~Housekeeping() { finish(); }

    static void block_signals();                           // call before any thread is created
    void start();
    void attach(PeriodicTasks tasks);                      // all objects that the tasks use must outlive detach()
    void detach();                                         // no task runs after it returns
    void finish();

    // Ends the process with this code after the given time, whatever blocks. 0 s cancels it.
    void force_exit_after(double seconds, int code);

    // Call after detach(), which adds the last, partial row.
    std::vector<TimelineRow> timeline();

private:
    void run();
    void watch();
    void on_signal(int number);
    void die();
    void tick(int64_t now);
    void advance_stage(int64_t now);
    void add_row(int64_t now);

    State& state_;
    int64_t liveliness_period_;
    std::thread thread_, watchdog_;
    std::atomic<bool> finished_{false};
    std::atomic<bool> in_tasks_{false};
    std::atomic<uint64_t> rounds_done_{0};
    std::mutex finish_mutex_;
    std::condition_variable finish_;
    std::atomic<int64_t> exit_at_{INT64_MAX};
    std::atomic<int> exit_code_{0};

    // Guarded by tasks_mutex_.
    std::mutex tasks_mutex_;
    PeriodicTasks tasks_;
    bool attached_ = false;
    int64_t next_liveliness_ = 0, next_row_ = 0, next_interval_ = 0;
    std::vector<TimelineRow> rows_;
    uint64_t counted_ = 0, counted_bytes_ = 0;
};

}  // namespace k8sdds
