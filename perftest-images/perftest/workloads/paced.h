// The paced test: samples at a fixed rate on a schedule that nothing shifts. Each sample carries the time at which it
// was due, so that a stall of the publisher counts in the delay of every sample that it held up.
#pragma once

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
    std::optional<Schedule> schedule() const override { return schedule_; }

private:
    void enter_measured_stage();

    ReceiverThread receiver_;                 // of pongs, in receive modes waitset and spin
    Pacer pacer_;
    Schedule schedule_;                       // written by the main thread
};

}  // namespace k8sdds
