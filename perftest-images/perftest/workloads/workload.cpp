#include "workload.h"

#include "latency.h"
#include "throughput.h"

namespace k8sdds {

std::unique_ptr<Workload> make_workload(const WorkloadContext& context) {
    if (context.options.latency_test) return std::make_unique<LatencyTest>(context);
    return std::make_unique<ThroughputTest>(context);
}

void Workload::stop_if_blocked_since(int64_t since_ns, int64_t now) {
    if (now - since_ns > progress_timeout_ns(options_.peer_timeout, state_.sample_bytes.load()))
        state_.stop(exit_peer_lost, "peer lost: no subscriber accepted a sample within -peerTimeout");
}

void Workload::begin_warm_up() {
    state_.stage_until_ns.store(now_ns() + to_ns(options_.warm_up));
    Stage expected = Stage::waiting;
    if (state_.stage.compare_exchange_strong(expected, Stage::warm_up) && options_.warm_up <= 0)
        state_.stage.store(Stage::measured);
}

void Workload::begin_measured_stage(int64_t now) {
    state_.begin_measured(now);
    state_.stage_until_ns.store(options_.execution_time > 0 ? now + to_ns(options_.execution_time) : INT64_MAX);
}

void Workload::end_measured_stage() {
    const int64_t now = now_ns();
    state_.last_ns.store(now);
    state_.end_measured(now);
}

}  // namespace k8sdds
