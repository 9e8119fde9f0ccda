// The latency test: one ping at a time, each answered by the subscriber whose turn it is; half the
// round trip on the publisher's clock is the latency.
//
// Who sends the next ping: with a listener the callback that took the pong does, at once, so that no
// other thread has to wake up. It hands over to the main thread where it must not block: when samples
// are paced, when the writer is full, and when a stage ends. Always exactly one thread has the turn.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "backend.h"
#include "histogram.h"
#include "options.h"
#include "pacer.h"
#include "state.h"

namespace k8sdds {

class LatencyTest {
public:
    LatencyTest(const Options&, const Settings&, Backend&, State&, Histogram&, const Sample& sample);

    void run();                               // warm-up and measured interval
    void on_pong(const Sample&);

    uint64_t sent() const { return sent_.load(); }          // measured pings
    uint64_t received() const { return received_.load(); }
    uint64_t timed_out() const { return timed_out_.load(); }

private:
    void turn(bool in_callback);
    void hand_over();
    void wait_for_turn();
    void give_up_waiting();
    bool enter_stage();

    const Options& options_;
    Backend& backend_;
    State& state_;
    Histogram& histogram_;
    Sample sample_;
    const unsigned subscribers_;
    const bool best_effort_, listens_;
    Pacer pacer_;

    // Belong to the thread that has the turn.
    Stage stage_ = Stage::warm_up;
    uint64_t number_ = 0;
    int64_t blocked_since_ = 0;

    std::atomic<uint64_t> awaited_{0};        // the ping that is under way, or 0
    std::atomic<int64_t> asked_ns_{0};        // when it was sent
    std::atomic<bool> finished_{false}, main_turn_{true};
    std::mutex mutex_;
    std::condition_variable handed_over_;

    std::atomic<uint64_t> sent_{0}, received_{0}, timed_out_{0};
};

}  // namespace k8sdds
