#include "latency_test.h"

#include <algorithm>

namespace k8sdds {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t best_effort_wait_ns = 200'000'000;

uint64_t token(const Sample& sample) {
    return (static_cast<uint64_t>(sample.phase) << 32 | sample.sequence) + 1;
}

}  // namespace

LatencyTest::LatencyTest(const Options& options, const Settings& settings, Backend& backend, State& state,
                         Histogram& histogram, const Sample& sample)
    : options_(options), backend_(backend), state_(state), histogram_(histogram), sample_(sample),
      subscribers_(settings.subscribers), best_effort_(!settings.qos.writer.reliable),
      listens_(settings.receive == Receive::listener), pacer_(options, state) {}

void LatencyTest::run() {
    state_.stage_until_ns.store(now_ns() + to_ns(options_.warm_up));
    Stage expected = Stage::waiting;
    if (state_.stage.compare_exchange_strong(expected, Stage::warm_up) && options_.warm_up <= 0)
        state_.stage.store(Stage::measured);
    while (!finished_.load()) {
        if (main_turn_.exchange(false)) turn(false);
        else wait_for_turn();
    }
    state_.stage.store(Stage::over);
}

bool LatencyTest::enter_stage() {
    const Stage wanted = state_.stage.load(relaxed);
    if (wanted == stage_) return true;
    if (wanted == Stage::over) return false;
    stage_ = wanted;
    number_ = 0;
    sample_.phase = Phase::measured;
    const int64_t now = now_ns();
    pacer_.restart(now);
    state_.begin_measured(now);
    state_.stage_until_ns.store(options_.execution_time > 0 ? now + to_ns(options_.execution_time) : INT64_MAX);
    return true;
}

// Sends the next ping, or ends the test.
void LatencyTest::turn(bool in_callback) {
    const bool over = !enter_stage() || (stage_ == Stage::measured && number_ >= static_cast<uint64_t>(options_.iterations));
    if (over) {
        const int64_t now = now_ns();
        state_.last_ns.store(now);
        state_.end_measured(now);
        finished_.store(true);
        return hand_over();
    }
    if (pacer_.paces()) {
        if (in_callback) {
            main_turn_.store(true);
            return hand_over();
        }
        if (!blocked_since_) pacer_.wait(stage_);
    }
    sample_.sequence = static_cast<uint32_t>(number_);
    sample_.ping = static_cast<int32_t>(number_ % subscribers_);
    sample_.sent_ns = now_ns();
    // The pong may come before write() returns: count first, and take it back where nothing was sent.
    const bool measured = stage_ == Stage::measured;
    const uint64_t number = number_++;
    if (measured) {
        sent_.store(number_, relaxed);
        state_.samples.store(number_, relaxed);
    }
    asked_ns_.store(sample_.sent_ns, relaxed);
    const uint64_t mine = token(sample_);
    awaited_.store(mine);
    const Written written = backend_.write(sample_);
    if (__builtin_expect(written == Written::ok, 1)) return;

    uint64_t unanswered = mine;
    if (!awaited_.compare_exchange_strong(unanswered, 0)) return;   // it was sent after all
    number_ = number;
    if (measured) {
        sent_.store(number, relaxed);
        state_.samples.store(number, relaxed);
    }
    const int64_t now = now_ns();
    if (!blocked_since_) blocked_since_ = now;
    if (written == Written::failed)
        state_.stop(exit_middleware, "middleware error: write: " + backend_.last_error());
    else if (now - blocked_since_ > patience_ns(options_.peer_timeout, state_.sample_bytes.load()))
        state_.stop(exit_peer_lost, "peer lost: no subscriber took a sample for the -peerTimeout");
    main_turn_.store(true);
    hand_over();
}

void LatencyTest::on_pong(const Sample& pong) {
    const int64_t now = now_ns();
    uint64_t mine = token(pong);
    if (!awaited_.compare_exchange_strong(mine, 0)) return;         // late, or a repetition
    blocked_since_ = 0;
    if (pong.phase == Phase::measured) {
        histogram_.record((now - pong.sent_ns) / 2);
        received_.store(received_.load(relaxed) + 1, relaxed);
    }
    if (listens_) turn(true);
    else main_turn_.store(true);
}

void LatencyTest::hand_over() {
    std::lock_guard<std::mutex> lock(mutex_);
    handed_over_.notify_one();
}

// Of the main thread: until it has the turn, or something may have to be given up.
void LatencyTest::wait_for_turn() {
    constexpr int64_t slice = 20'000'000;
    if (options_.receive == "waitset") {
        if (backend_.wait(slice)) backend_.take();
    } else if (options_.receive == "spin") {
        for (int i = 0; i < 1000 && !main_turn_.load(relaxed) && !finished_.load(relaxed); ++i) backend_.take();
    } else {
        std::unique_lock<std::mutex> lock(mutex_);
        handed_over_.wait_for(lock, std::chrono::nanoseconds(slice), [&] { return main_turn_.load() || finished_.load(); });
    }
    if (!main_turn_.load() && !finished_.load()) give_up_waiting();
}

void LatencyTest::give_up_waiting() {
    uint64_t mine = awaited_.load();
    if (!mine) return;
    const int64_t waited = now_ns() - asked_ns_.load(relaxed);
    const bool late = best_effort_ && waited > best_effort_wait_ns;
    if (!late && !best_effort_ && waited > patience_ns(options_.peer_timeout, 2 * state_.sample_bytes.load()))
        state_.stop(exit_peer_lost, "peer lost: a ping was not answered for the -peerTimeout");
    if (!late && !state_.stopped.load()) return;
    if (!awaited_.compare_exchange_strong(mine, 0)) return;         // the pong has just come
    if (mine - 1 >= (uint64_t{1} << 32)) timed_out_.store(timed_out_.load(relaxed) + 1, relaxed);
    blocked_since_ = 0;
    main_turn_.store(true);
}

}  // namespace k8sdds
