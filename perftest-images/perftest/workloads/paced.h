// The paced test: samples on a schedule that nothing shifts. Each sample carries the time at which it
// was due, so that a stall of the publisher counts in the delay of every sample that it held up.
#pragma once

#include <array>

#include "pacer.h"
#include "receiver.h"
#include "workload.h"

namespace k8sdds {

class PacedTest final : public Workload {
public:
    explicit PacedTest(const WorkloadContext& context);

    void run() override;
    void on_pong(const Sample&) override;
    void stop() override { receiver_.stop(); }
    int64_t scheduled_ns() const override { return std::min(pacer_.due_after(samples_), to_ns(options_.execution_time)); }
    std::optional<Schedule> schedule() const override {
        return Schedule{samples_, late_.load(), max_lateness_ns_.load()};
    }

private:
    static uint64_t distance_of_pings(const Options& options, uint64_t samples);
    void enter_measured_stage();
    std::atomic<int64_t>& lateness_of(uint64_t number) { return lateness_ns_[number / ping_every_ % pings_kept]; }

    static constexpr uint64_t pings_wanted = 20'000;       // twice what the 99.9th percentile needs
    static constexpr size_t pings_kept = 1024;             // more than can be unanswered at one time

    ReceiverThread receiver_;                              // of pongs, in receive modes waitset and spin
    Pacer pacer_;
    const uint64_t samples_;                               // of the schedule
    const uint64_t writers_;
    const uint64_t ping_every_;
    // Written by the main thread.
    std::atomic<uint64_t> late_{0};
    std::atomic<int64_t> max_lateness_ns_{0};
    std::array<std::atomic<int64_t>, pings_kept> lateness_ns_{};    // of the last pings
};

}  // namespace k8sdds
