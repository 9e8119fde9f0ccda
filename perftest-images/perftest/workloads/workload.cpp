#include "workload.h"

#include <algorithm>

#include "latency.h"
#include "paced.h"
#include "throughput.h"

namespace k8sdds {

std::unique_ptr<Workload> make_workload(const WorkloadContext& context) {
    switch (context.options.test()) {
    case Test::latency: return std::make_unique<LatencyTest>(context);
    case Test::paced: return std::make_unique<PacedTest>(context);
    case Test::throughput:
    case Test::graph:                                      // a node of a graph and a member of a fleet have no workload
    case Test::discovery: break;
    }
    return std::make_unique<ThroughputTest>(context);
}

void stop_if_blocked_since(const Options& options, State& state, int64_t since_ns, int64_t now) {
    if (now - since_ns > progress_timeout_ns(options.peer_timeout, state.sample_bytes.load()))
        state.stop(exit_peer_lost, "peer lost: no subscriber accepted a sample within -peerTimeout");
}

bool retry_write(const Options& options, State& state, Backend& backend, const Sample& sample, Written written) {
    const int64_t since = now_ns();
    while (written == Written::blocked) {
        if (state.stage.load(std::memory_order_relaxed) == Stage::over) return false;
        stop_if_blocked_since(options, state, since, now_ns());
        if (state.stopped.load()) return false;
        written = backend.write(sample);
    }
    if (written == Written::ok) return true;
    state.stop(exit_middleware, "middleware error: write: " + backend.last_error());
    return false;
}

uint64_t Workload::pongs_timed_out() const {
    const uint64_t sent = pings_sent();
    return sent - std::min(sent, pongs_received());
}

void Workload::begin_warm_up() {
    if (options_.warm_up <= 0) {
        // No end is due until the measured stage has its own: the housekeeping thread would end that one.
        state_.advance(Stage::waiting, Stage::measured);
        return;
    }
    state_.stage_until_ns.store(now_ns() + to_ns(options_.warm_up));
    state_.advance(Stage::waiting, Stage::warm_up);
}

void Workload::begin_measured_stage(int64_t now, int64_t grace_ns) {
    // First, because the housekeeping thread may sleep longer as soon as the interval has begun.
    state_.stage_until_ns.store(options_.execution_time > 0 ? now + to_ns(options_.execution_time) + grace_ns : INT64_MAX);
    retransmitted_before_ = backend_.retransmitted_bytes();
    state_.begin_measured(now);
}

void Workload::end_measured_stage() {
    const int64_t now = now_ns();
    state_.last_ns.store(now);
    state_.end_measured(now);
}

}  // namespace k8sdds
