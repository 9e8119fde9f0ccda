#include "paced.h"

#include <algorithm>
#include <numeric>

namespace k8sdds {

constexpr auto relaxed = std::memory_order_relaxed;

uint64_t PacedTest::distance_of_pings(const Options& options, uint64_t samples) {
    if (options.latency_count > 0) return static_cast<uint64_t>(options.latency_count);
    uint64_t distance = std::max<uint64_t>(1, samples / pings_wanted);
    // Pings of all samples of a recorded schedule, not of some of them in each period.
    while (options.recorded && std::gcd(distance, options.recorded->samples()) > 1) ++distance;
    return distance;
}

PacedTest::PacedTest(const WorkloadContext& context)
    : Workload(context), pacer_(context.options, context.state),
      samples_(std::min(pacer_.samples_before(to_ns(context.options.execution_time)),
                        static_cast<uint64_t>(context.options.iterations))),
      writers_(static_cast<uint64_t>(context.options.topics * context.options.writers)),
      ping_every_(distance_of_pings(context.options, samples_)) {}

void PacedTest::run() {
    receiver_.start(backend_, options_.receive);
    Sample sample = sample_;
    Numbering numbering(options_);
    uint64_t number = 0, bytes = 0;
    Stage stage = Stage::warm_up;
    begin_warm_up();
    pacer_.start(now_ns());
    for (;;) {
        const Stage current = state_.stage.load(relaxed);
        if (current == Stage::over) break;
        if (current != stage) {
            stage = current;
            number = 0;
            numbering.restart();
            sample.phase = Phase::measured;
            enter_measured_stage();
        }
        if (stage == Stage::measured && number == samples_) break;
        pacer_.wait(stage);
        if (state_.stage.load(relaxed) != stage) continue;
        const int64_t due = pacer_.due(), now = now_ns();
        const bool pings = !shared_clock_ && number % ping_every_ == 0;
        numbering.number(sample);
        sample.sent_ns = due;
        if (options_.recorded) sample.payload_length = options_.recorded->length(number) - sample_overhead;
        if (pings) lateness_of(number).store(now - due, relaxed);
        sample.ping = pings ? static_cast<int32_t>(number / ping_every_ % subscribers_) : -1;
        const Written written = backend_.write(sample);
        if (written != Written::ok && !retry_write(sample, written)) break;
        pacer_.advance();
        ++number;
        numbering.advance();
        if (stage != Stage::measured) continue;
        bytes += sample.payload_length + sample_overhead;
        state_.varying_bytes.store(bytes, relaxed);
        if (now - due > pacer_.period_ns()) late_.store(late_.load(relaxed) + 1, relaxed);
        if (now - due > max_lateness_ns_.load(relaxed)) max_lateness_ns_.store(now - due, relaxed);
        if (pings) pings_sent_.store(pings_sent_.load(relaxed) + 1, relaxed);
        state_.samples.store(number, std::memory_order_release);   // a thread that sees the sample also sees its bytes
    }
    backend_.flush();
    end_measured_stage();
    state_.advance(state_.stage.load(), Stage::over);
}

void PacedTest::enter_measured_stage() {
    const int64_t now = now_ns();
    pacer_.restart(now);
    begin_measured_stage(now, schedule_grace_ns);
}

// The delay is half of the round trip, plus how late the ping was sent.
void PacedTest::on_pong(const Sample& pong) {
    if (pong.phase != Phase::measured) return;
    const uint64_t number = uint64_t{pong.sequence} * writers_ + pong.writer;
    const int64_t late_ns = lateness_of(number).load(relaxed);
    histogram_.record(late_ns + (elapsed_ns(pong.sent_ns, now_ns()) - late_ns) / 2);
    pongs_received_.store(pongs_received_.load(relaxed) + 1, relaxed);
}

}  // namespace k8sdds
