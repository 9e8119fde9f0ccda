#include "latency.h"

namespace k8sdds {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t best_effort_wait_ns = 200'000'000;
constexpr uint64_t first_measured_token = uint64_t{1} << 32;

// Identifies a ping within a run; never 0. Tokens of the measured phase are larger than first_measured_token.
uint64_t token(const Sample& sample) {
    return (static_cast<uint64_t>(sample.phase) << 32 | sample.sequence) + 1;
}

}  // namespace

LatencyTest::LatencyTest(const WorkloadContext& context)
    : Workload(context), best_effort_(!context.settings.qos.writer.reliable),
      uses_listener_(context.settings.receive == Receive::listener), pacer_(context.options, context.state) {}

void LatencyTest::run() {
    begin_warm_up();
    pacer_.start(now_ns());
    while (!finished_.load()) {
        if (main_sends_next_.exchange(false)) send_ping(false);
        else wait_for_pong();
    }
    state_.stage.store(Stage::over);
}

// Follows the stage that the housekeeping thread sets; returns false when the test is over.
bool LatencyTest::enter_stage() {
    const Stage current = state_.stage.load(relaxed);
    if (current == stage_) return true;
    if (current == Stage::over) return false;
    stage_ = current;
    number_ = 0;
    sample_.phase = Phase::measured;
    const int64_t now = now_ns();
    pacer_.restart(now);
    begin_measured_stage(now);
    return true;
}

// Sends the next ping, or ends the test. The caller owns the right to send.
void LatencyTest::send_ping(bool in_callback) {
    const bool over =
        !enter_stage() || (stage_ == Stage::measured && number_ >= static_cast<uint64_t>(options_.iterations));
    if (over) {
        end_measured_stage();
        finished_.store(true);
        return state_.wake();
    }
    if (pacer_.is_limited()) {
        if (in_callback) {
            main_sends_next_.store(true);
            return state_.wake();
        }
        if (!blocked_since_) {
            pacer_.wait(stage_);
            if (state_.stage.load(relaxed) != stage_) return main_sends_next_.store(true);
            due_ns_.store(pacer_.due(), relaxed);
            pacer_.advance();
        }
    }
    sample_.sequence = static_cast<uint32_t>(number_);
    sample_.instance = static_cast<uint32_t>(number_ % static_cast<uint64_t>(options_.instances));
    sample_.ping = static_cast<int32_t>(number_ % subscribers_);
    sample_.sent_ns = now_ns();
    // The pong may arrive before write() returns: count the ping first, and undo it if nothing was sent.
    const bool measured = stage_ == Stage::measured;
    const uint64_t number = number_++;
    if (measured) {
        pings_sent_.store(number_, relaxed);
        state_.samples.store(number_, relaxed);
    }
    ping_sent_ns_.store(sample_.sent_ns, relaxed);
    const uint64_t ping = token(sample_);
    writing_.store(true, relaxed);
    outstanding_.store(ping);
    const Written written = backend_.write(sample_);
    writing_.store(false, std::memory_order_release);
    if (__builtin_expect(written == Written::ok, 1)) return;

    uint64_t unanswered = ping;
    if (!outstanding_.compare_exchange_strong(unanswered, 0)) return;   // the ping was sent, and its pong has arrived
    number_ = number;
    if (measured) {
        pings_sent_.store(number, relaxed);
        state_.samples.store(number, relaxed);
    }
    const int64_t now = now_ns();
    if (!blocked_since_) blocked_since_ = now;
    if (written == Written::failed)
        state_.stop(exit_middleware, "middleware error: write: " + backend_.last_error());
    else
        stop_if_blocked_since(blocked_since_, now);
    main_sends_next_.store(true);
    state_.wake();
}

void LatencyTest::on_pong(const Sample& pong) {
    const int64_t now = now_ns();
    uint64_t ping = token(pong);
    if (!outstanding_.compare_exchange_strong(ping, 0)) return;         // timed out already, or a duplicate
    blocked_since_ = 0;
    if (pong.phase == Phase::measured) {
        // With a rate, a ping that waited for the answer to the previous one is timed from when it was due.
        const int64_t late_ns = pacer_.is_limited() ? elapsed_ns(due_ns_.load(relaxed), pong.sent_ns) : 0;
        histogram_.record(late_ns + elapsed_ns(pong.sent_ns, now) / 2);
        pongs_received_.store(pongs_received_.load(relaxed) + 1, relaxed);
    }
    if (uses_listener_ && !writing_.load(std::memory_order_acquire)) return send_ping(true);
    main_sends_next_.store(true);
    if (uses_listener_) state_.wake();
}

// Called by the main thread: returns when it may have to send, when the test is finished, or when a pong is overdue.
// It does not wake up in between, because it may share a core with the thread that receives pongs.
void LatencyTest::wait_for_pong() {
    constexpr int64_t slice_ns = 20'000'000;
    const auto awaited = [&] { return main_sends_next_.load(relaxed) || finished_.load(); };
    if (options_.receive == "waitset") {
        if (backend_.wait(slice_ns)) backend_.take();
    } else if (options_.receive == "spin") {
        for (int i = 0; i < 1000 && !awaited(); ++i) backend_.take();
    } else {
        const int64_t since = outstanding_.load() ? ping_sent_ns_.load(relaxed) : now_ns();
        state_.sleep_until(since + pong_timeout_ns(), state_.stage.load(), awaited);
    }
    if (!awaited()) check_pong_timeout();
}

// A reliable publisher waits for the peer timeout and then ends the run. A best-effort publisher sends the next ping.
int64_t LatencyTest::pong_timeout_ns() const {
    return best_effort_ ? best_effort_wait_ns
                        : progress_timeout_ns(options_.peer_timeout, 2 * state_.sample_bytes.load());
}

void LatencyTest::check_pong_timeout() {
    uint64_t ping = outstanding_.load();
    if (!ping) return;
    const bool overdue = now_ns() - ping_sent_ns_.load(relaxed) >= pong_timeout_ns();
    if (overdue && !best_effort_)
        state_.stop(exit_peer_lost, "peer lost: a ping was not answered within -peerTimeout");
    if (!overdue && !state_.stopped.load()) return;
    if (writing_.load(std::memory_order_acquire)) return;
    if (!outstanding_.compare_exchange_strong(ping, 0)) return;         // the pong has just arrived
    if (ping > first_measured_token) timed_out_.store(timed_out_.load(relaxed) + 1, relaxed);
    blocked_since_ = 0;
    main_sends_next_.store(true);
}

}  // namespace k8sdds
