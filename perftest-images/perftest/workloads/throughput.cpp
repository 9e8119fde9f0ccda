#include "throughput.h"

#include <algorithm>

namespace k8sdds {

constexpr auto relaxed = std::memory_order_relaxed;

ThroughputTest::ThroughputTest(const WorkloadContext& context) : Workload(context) {}

// Returns false if the sample was not written and the test is over.
bool ThroughputTest::retry_write(const Sample& sample, Written written) {
    const int64_t since = now_ns();
    while (written == Written::blocked) {
        if (state_.stage.load(relaxed) == Stage::over) return false;
        stop_if_blocked_since(since, now_ns());
        if (state_.stopped.load()) return false;
        written = backend_.write(sample);
    }
    if (written == Written::ok) return true;
    state_.stop(exit_middleware, "middleware error: write: " + backend_.last_error());
    return false;
}

// The loop over samples is the measured path: it must not allocate, lock or log. Local references keep the compiler from
// reloading members after each call.
void ThroughputTest::run() {
    receiver_.start(backend_, options_.receive);

    Backend& backend = backend_;
    State& state = state_;
    Pacer pacer(options_, state);
    const bool limited = pacer.is_limited();
    Sample sample = sample_;
    const uint64_t ping_every = static_cast<uint64_t>(options_.latency_count);
    const uint64_t limit = static_cast<uint64_t>(options_.iterations);
    uint64_t until_ping = 1, number = 0;
    int32_t pinged = 0;
    Stage stage = Stage::warm_up;
    begin_warm_up();
    for (;;) {
        const Stage current = state.stage.load(relaxed);
        if (__builtin_expect(current != stage, 0)) {
            if (current == Stage::over) break;
            stage = current;
            number = 0;
            until_ping = 1;
            sample.phase = Phase::measured;
            const int64_t now = now_ns();
            pacer.restart(now);
            begin_measured_stage(now);
        }
        if (limited) {
            pacer.wait(stage);
            if (state.stage.load(relaxed) != stage) continue;
        }
        sample.sequence = static_cast<uint32_t>(number);
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
        if (stage == Stage::measured) {
            state.samples.store(number, relaxed);
            if (number >= limit) break;
        }
    }
    backend.flush();
    end_measured_stage();
    state.stage.store(Stage::over);
}

void ThroughputTest::on_pong(const Sample& pong) {
    if (pong.phase != Phase::measured) return;
    histogram_.record((now_ns() - pong.sent_ns) / 2);
    pongs_received_.store(pongs_received_.load(relaxed) + 1, relaxed);
}

uint64_t ThroughputTest::pongs_timed_out() const {
    const uint64_t sent = pings_sent();
    return sent - std::min(sent, pongs_received());
}

}  // namespace k8sdds
