// The latency test: one ping at a time, answered by one subscriber after the other. Half the round trip on the
// publisher's monotonic clock is the latency.
//
// Exactly one thread owns the right to send the next ping. In receive mode listener this is the middleware's thread
// that delivered the pong, so that no other thread has to wake up. That thread must not block, so it passes the
// right to the main thread when samples are paced, when the writer is full, and when a stage ends.
#pragma once

#include "pacer.h"
#include "workload.h"

namespace k8sdds {

class LatencyTest final : public Workload {
public:
    explicit LatencyTest(const WorkloadContext& context);

    void run() override;
    void on_pong(const Sample&) override;
    uint64_t pongs_timed_out() const override { return timed_out_.load(); }

private:
    void send_ping(bool in_callback);
    void wait_for_pong();
    int64_t pong_timeout_ns() const;
    void check_pong_timeout();
    bool enter_stage();

    const bool best_effort_, uses_listener_;
    Pacer pacer_;

    // Written only by the thread that may send the next ping.
    Stage stage_ = Stage::warm_up;
    uint64_t number_ = 0;
    int64_t blocked_since_ = 0;

    std::atomic<uint64_t> outstanding_{0};    // token of the ping in flight, or 0; whoever clears it sends the next ping
    std::atomic<int64_t> ping_sent_ns_{0}, due_ns_{0};     // of the last ping; due_ns_ only with a rate
    std::atomic<bool> finished_{false}, main_sends_next_{true};
    std::atomic<bool> writing_{false};        // write() of the last ping has not returned, so that no other thread may call it
    std::atomic<uint64_t> timed_out_{0};
};

}  // namespace k8sdds
