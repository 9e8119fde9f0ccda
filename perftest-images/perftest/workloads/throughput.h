// The throughput test: samples as fast as possible or at a fixed rate. With -loadedLatency or -latencyCount, some of them
// are pings, which give the latency under load.
#pragma once

#include "pacer.h"
#include "receiver.h"
#include "workload.h"

namespace k8sdds {

class ThroughputTest final : public Workload {
public:
    explicit ThroughputTest(const WorkloadContext& context);

    void run() override;
    void on_pong(const Sample&) override;
    void stop() override { receiver_.stop(); }

private:
    uint64_t ping_period(uint64_t warm_up_samples) const;

    ReceiverThread receiver_;                 // of pongs, in receive modes waitset and spin
};

}  // namespace k8sdds
