// The low-frequency thread: signals, the stages' deadlines, the 100 ms timeline, the interval lines,
// the signs of life, and the forced end when the middleware blocks. It touches no sample.
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

// What the service thread does for the role, all of it rarely.
struct Duties {
    std::function<void()> alive;                           // tell the peers
    std::function<void(int64_t)> check;                    // look after the peers; now
    std::function<void()> interval;                        // each second of the measured interval
};

class Service {
public:
    Service(State& state, int64_t alive_period_ns) : state_(state), alive_period_(alive_period_ns) {}
    ~Service() { finish(); }

    static void block_signals();                           // before any other thread is made
    void start();
    void engage(Duties duties);                            // from now on; the duties outlive the service
    void disengage();                                      // returns when no duty runs any more
    void finish();

    // The process ends with this code when the time is over, whatever blocks. 0 s: never mind.
    void force_exit_after(double seconds, int code);

    // After disengage(): with the last, partial row.
    std::vector<TimelineRow> timeline();

private:
    void run();
    void watch();
    void on_signal(int number);
    void tick(int64_t now);
    void move_stage(int64_t now);
    void add_row(int64_t now);

    State& state_;
    int64_t alive_period_;
    std::thread thread_, watchdog_;
    std::atomic<bool> finished_{false};
    std::atomic<bool> in_duty_{false};
    std::atomic<uint64_t> duties_done_{0};
    std::mutex end_mutex_;
    std::condition_variable end_;
    std::atomic<int64_t> exit_at_{INT64_MAX};
    std::atomic<int> exit_code_{0};
    std::mutex duties_mutex_;
    Duties duties_;
    bool engaged_ = false;
    int64_t next_alive_ = 0, next_row_ = 0, next_interval_ = 0;
    std::vector<TimelineRow> rows_;
    uint64_t counted_ = 0;
};

}  // namespace k8sdds
