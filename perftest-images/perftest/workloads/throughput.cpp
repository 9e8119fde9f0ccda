#include "throughput.h"

#include <algorithm>

namespace k8sdds {

constexpr auto relaxed = std::memory_order_relaxed;

ThroughputTest::ThroughputTest(const WorkloadContext& context) : Workload(context) {}

// Returns how many samples there are from one ping to the next; 0: no sample is a ping. Each answer is a sample that a
// subscriber sends, which takes from the rate. The expected rate is that of the warm-up, unless the samples have a rate.
uint64_t ThroughputTest::ping_period(uint64_t warm_up_samples) const {
    constexpr double wanted = 200;                         // twice what the 90th percentile needs
    constexpr uint64_t least = 10, unknown = 10'000;       // the latter is PerfTest's default
    if (options_.latency_count > 0) return static_cast<uint64_t>(options_.latency_count);
    if (!options_.loaded_latency) return 0;
    const double warm_up_rate = options_.warm_up > 0 ? static_cast<double>(warm_up_samples) / options_.warm_up : 0;
    const double expected = (options_.rate > 0 ? options_.rate : warm_up_rate) * options_.execution_time;
    return expected > 0 ? std::max(least, static_cast<uint64_t>(expected / wanted)) : unknown;
}

// The loop over samples is the measured path: it must not allocate, lock or log. Local references keep the compiler from
// reloading members after each call.
void ThroughputTest::run() {
    if (options_.times_samples()) receiver_.start(backend_, options_.receive);

    Backend& backend = backend_;
    State& state = state_;
    Pacer pacer(options_, state);
    const bool limited = pacer.is_limited();
    Sample sample = sample_;
    Numbering numbering(options_);
    uint64_t ping_every = ping_period(0);
    const uint64_t limit = static_cast<uint64_t>(options_.iterations);
    uint64_t until_ping = ping_every ? 1 : 0, number = 0;  // 0 minus 1 is more than a run has samples
    int32_t pinged = 0;
    Stage stage = Stage::warm_up;
    begin_warm_up();
    pacer.start(now_ns());
    for (;;) {
        const Stage current = state.stage.load(relaxed);
        if (__builtin_expect(current != stage, 0)) {
            if (current == Stage::over) break;
            stage = current;
            ping_every = ping_period(number);
            number = 0;
            numbering.restart();
            until_ping = ping_every ? 1 : 0;
            sample.phase = Phase::measured;
            const int64_t now = now_ns();
            pacer.restart(now);
            begin_measured_stage(now);
        }
        if (limited) {
            pacer.skip_missed(now_ns());
            pacer.wait(stage);
            if (state.stage.load(relaxed) != stage) continue;
            pacer.advance();
        }
        numbering.number(sample);
        sample.ping = -1;
        if (__builtin_expect(--until_ping == 0, 0)) {
            until_ping = ping_every;
            sample.ping = pinged;
            pinged = (pinged + 1) % static_cast<int32_t>(subscribers_);
            if (stage == Stage::measured) pings_sent_.store(pings_sent_.load(relaxed) + 1, relaxed);
            sample.sent_ns = now_ns();
        }
        const Written written = backend.write(sample);
        if (__builtin_expect(written != Written::ok, 0) && !retry_write(sample, written)) {
            if (sample.ping >= 0 && stage == Stage::measured) pings_sent_.store(pings_sent_.load(relaxed) - 1, relaxed);
            break;
        }
        ++number;
        numbering.advance();
        if (stage == Stage::measured) {
            state.samples.store(number, relaxed);
            if (number >= limit) break;
        }
    }
    backend.flush();
    end_measured_stage();
    state.advance(state.stage.load(), Stage::over);
}

void ThroughputTest::on_pong(const Sample& pong) {
    if (pong.phase != Phase::measured) return;
    histogram_.record(elapsed_ns(pong.sent_ns, now_ns()) / 2);
    pongs_received_.store(pongs_received_.load(relaxed) + 1, relaxed);
}

}  // namespace k8sdds
