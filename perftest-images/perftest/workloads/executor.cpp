#include "executor.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "workload.h"

namespace k8sdds {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t never = INT64_MAX;

int64_t thread_cpu_ns() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

}  // namespace

Executor::Output::Output(const Flow& described, const Options& options, size_t number)
    : flow(described), writer(static_cast<uint16_t>(number)) {
    if (!flow.after.empty()) {
        join = std::make_unique<Join>(flow.after.size());
        return;
    }
    if (flow.recorded) profile.emplace(flow.recorded);
    else profile.emplace("constant", flow.rate, options.execution_time);
    due_samples[0] = options.warm_up > 0 ? profile->samples_before(to_ns(options.warm_up)) : 0;
    due_samples[1] = profile->samples_before(to_ns(options.execution_time));
    if (!due_samples[0]) phase = Phase::measured;
}

Trigger Executor::Output::next() const {
    if (ended) return {never, never, phase};
    if (join) {
        const Trigger* const front = join->front();
        return front ? *front : Trigger{never, never, phase};
    }
    const auto index = static_cast<size_t>(phase);
    const int64_t due = sequence < due_samples[index] ? begin_ns[index] + profile->due_ns(sequence) : never;
    return {due, due, phase};
}

bool Executor::Output::has_more() const { return next().due_ns != never || (join ? !inputs_ended : phase == Phase::warm_up); }

Executor::Executor(const Options& options, const Settings& settings, Backend& backend, State& state, uint32_t run)
    : options_(options), backend_(backend), state_(state), wait_(state, true) {
    uint64_t longest = 0;
    for (const unsigned flow : options.graph->nodes[options.node_index].publishes) {
        outputs_.push_back(std::make_unique<Output>(options.graph->flows[flow], options, outputs_.size()));
        longest = std::max<uint64_t>(longest, outputs_.back()->flow.bytes);
    }
    payload_.assign(longest, 0xa5);
    sample_.run = run;
    sample_.publisher = static_cast<uint16_t>(settings.id);
    sample_.payload = payload_.data();
}

void Executor::notify() {
    notified_.fetch_add(1);
    state_.wake();
}

void Executor::schedule(int64_t warm_up_ns, int64_t measured_ns) {
    measured_ns_ = measured_ns;
    over_ns_ = measured_ns + to_ns(options_.execution_time) + schedule_grace_ns;
    for (const auto& output : outputs_) {
        output->begin_ns[0] = warm_up_ns;
        output->begin_ns[1] = measured_ns;
    }
    wait_.prepare();
    state_.advance(Stage::waiting, Stage::warm_up);
}

// Returns the output with the earliest sample, if there is one.
Executor::Output* Executor::earliest(Trigger& trigger) const {
    Output* first = nullptr;
    trigger.due_ns = never;
    for (const auto& output : outputs_) {
        const Trigger next = output->next();
        if (next.due_ns >= trigger.due_ns) continue;
        first = output.get();
        trigger = next;
    }
    return first;
}

void Executor::step(int64_t until_ns) {
    if (state_.stopped.load()) return;
    seen_ = notified_.load();
    const Stage stage = state_.stage.load();
    const int64_t now = now_ns();
    if (stage == Stage::warm_up && now >= measured_ns_) return begin_measured();
    end_flows();
    Trigger trigger;
    Output* const output = earliest(trigger);
    if (output && trigger.due_ns <= now) return send(*output, trigger);
    const int64_t due_ns = stage == Stage::warm_up ? std::min(trigger.due_ns, measured_ns_) : trigger.due_ns;
    const auto notified = [this] { return notified_.load(relaxed) != seen_; };
    if (due_ns <= until_ns) wait_.until(due_ns, stage, notified);
    else state_.sleep_until(until_ns, stage, notified);
}

// Flows with inputs follow when a measured sample of their origin arrives.
void Executor::begin_measured() {
    for (const auto& output : outputs_) {
        if (output->join || output->phase == Phase::measured) continue;
        output->phase = Phase::measured;
        output->sequence = 0;
    }
    // First, because the housekeeping thread may sleep longer as soon as the interval has begun.
    state_.stage_until_ns.store(over_ns_);
    state_.begin_measured(measured_ns_);
    state_.advance(Stage::warm_up, Stage::measured);
}

// The stage alone is not sufficient: the housekeeping thread may be late to end it, and a measured sample of a node that began
// a little earlier is computed while the stage is still the warm-up.
bool Executor::is_over(int64_t now) const {
    return now >= over_ns_ || state_.stage.load(relaxed) == Stage::over;
}

void Executor::compute(int64_t ns) const {
    const int64_t until = thread_cpu_ns() + ns;
    while (thread_cpu_ns() < until && !is_over(now_ns())) {}
}

void Executor::send(Output& output, const Trigger& trigger) {
    if (output.flow.compute_ns) compute(output.flow.compute_ns);
    const int64_t now = now_ns();
    if (is_over(now)) return;
    if (trigger.phase != output.phase) {
        output.phase = trigger.phase;
        output.sequence = 0;
    }
    const int64_t lateness_ns = now - trigger.due_ns;
    const uint32_t length = output.flow.recorded ? output.flow.recorded->length(output.sequence) : output.flow.bytes;
    std::memcpy(payload_.data(), &trigger.origin_ns, Graph::origin_bytes);
    sample_.payload_length = length - sample_overhead;
    sample_.sent_ns = trigger.due_ns;
    sample_.phase = trigger.phase;
    sample_.sequence = static_cast<uint32_t>(output.sequence);
    sample_.writer = output.writer;
    const Written written = backend_.write(sample_);
    if (written != Written::ok && !retry_write(options_, state_, backend_, sample_, written)) return;
    ++output.sequence;
    if (output.join) output.join->pop();
    if (trigger.phase == Phase::measured) count(output, length, lateness_ns);
}

void Executor::count(Output& output, uint64_t length, int64_t lateness_ns) {
    output.bytes.store(output.bytes.load(relaxed) + length, relaxed);
    if (lateness_ns > output.flow.period_ns) output.late.store(output.late.load(relaxed) + 1, relaxed);
    if (lateness_ns > output.max_lateness_ns.load(relaxed)) output.max_lateness_ns.store(lateness_ns, relaxed);
    output.sent.store(output.sent.load(relaxed) + 1, std::memory_order_release);   // a thread that sees the sample sees its bytes
}

// Ends the flows of which nothing follows, and all of them when the time for samples that are late has passed.
void Executor::end_flows() {
    const bool over = is_over(now_ns());
    for (const auto& output : outputs_) {
        if (output->ended || (!over && output->has_more())) continue;
        output->ended = true;
        newly_ended_ = output->writer;
        backend_.flush();
    }
}

bool Executor::has_ended() const {
    return std::all_of(outputs_.begin(), outputs_.end(), [](const auto& output) { return output->ended; });
}

FlowResult Executor::result(size_t writer) const {
    const Output& output = *outputs_[writer];
    FlowResult result;
    result.flow = output.flow.name;
    result.publisher = options_.node;
    result.publishes = result.sent_known = true;
    result.sent = output.sent.load(std::memory_order_acquire);
    result.bytes = output.bytes.load();
    result.schedule = {output.join ? output.join->measured() : output.due_samples[1], output.late.load(),
                       output.max_lateness_ns.load()};
    return result;
}

}  // namespace k8sdds
