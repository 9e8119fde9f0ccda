#include "flow_input.h"

#include <cstring>

#include "executor.h"

namespace k8sdds {

constexpr auto relaxed = std::memory_order_relaxed;

FlowInput::FlowInput(const Flow& flow)
    : flow_(flow), chain_(flow.after.empty() ? nullptr : std::make_unique<Histogram>()) {}

FlowInput::Taken FlowInput::receive(const Sample& sample, int64_t now) {
    const uint32_t length = sample.payload_length + sample_overhead;
    const bool has_length = flow_.recorded ? length <= flow_.bytes : length == flow_.bytes;
    if (!has_length || sample.payload_length < Graph::origin_bytes) return Taken::refused;
    last_arrival_ns_.store(now, relaxed);
    int64_t origin = 0;
    std::memcpy(&origin, sample.payload, sizeof origin);
    const bool measured = sample.phase == Phase::measured;
    if (measured && !tracker_.record(sample.sequence)) return Taken::duplicate;
    const int64_t publisher_now = now + clock_difference_ns_.load(relaxed);
    const int64_t delay_ns = elapsed_ns(sample.sent_ns, publisher_now), chain_ns = elapsed_ns(origin, publisher_now);
    age_.arrived(now, elapsed_ns(delay_ns, now));
    if (measured) {
        delays_.record(delay_ns);
        if (chain_) chain_->record(chain_ns);
        if (delay_ns > flow_.deadline_ns) late_.store(late_.load(relaxed) + 1, relaxed);
        bytes_.store(bytes_.load(relaxed) + length, relaxed);
    }
    const Trigger input{now, elapsed_ns(chain_ns, now), sample.phase};
    for (const Follower& follower : followers_)
        if (follower.join->arrived(follower.index, input, elapsed_ns(delay_ns, now))) follower.executor->notify();
    if (!measured) return Taken::warm_up;
    // A thread that sees that all samples have arrived sees what follows them.
    received_.store(received_.load(relaxed) + 1, std::memory_order_release);
    return Taken::measured;
}

void FlowInput::set_clock(int64_t difference_ns, bool shared, bool shared_by_chain) {
    clock_difference_ns_.store(difference_ns);
    shared_clock_.store(shared);
    shared_chain_clock_.store(shared_by_chain);
}

void FlowInput::end(uint64_t sent, int64_t clock_difference_ns) {
    if (completion_.ended) return;
    completion_.ended = true;
    completion_.sent = sent;
    completion_.last_progress_ns = now_ns();
    clock_step_ns_ = clock_difference_ns - clock_difference_ns_.load();
}

bool FlowInput::update(int64_t now, int64_t quiet_ns) {
    completion_.progressed(received(), now);
    completion_.update(now, flow_.reliable, quiet_ns);
    return completion_.complete;
}

FlowResult FlowInput::result(const Graph& graph, const Announced& announced) const {
    FlowResult result;
    result.flow = flow_.name;
    result.publisher = graph.nodes[flow_.publisher].name;
    result.received = received();
    result.sent_known = announced.ended;
    result.sent = announced.ended ? announced.sent : result.received + tracker_.missing();
    result.lost = result.sent - std::min(result.sent, result.received);
    result.bytes = bytes_.load();
    result.duplicates = tracker_.duplicates();
    result.out_of_order = tracker_.out_of_order();
    result.arrivals.shared_clock = shared_clock_.load();
    result.arrivals.clock_step_ns = std::abs(announced.clock_step_ns);
    result.arrivals.deadline_ns = flow_.deadline_ns;
    result.arrivals.missed = late_.load() + result.lost;
    result.arrivals.freshness = age_.freshness();
    result.shared_chain_clock = shared_chain_clock_.load();
    result.delays = &delays_;
    result.chain = chain_ ? chain_.get() : &delays_;
    return result;
}

}  // namespace k8sdds
