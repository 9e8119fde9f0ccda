#include "service.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace k8sdds {
namespace {

constexpr int64_t row_ns = 100'000'000, interval_ns = 1'000'000'000, idle_ns = 10'000'000, watch_ns = 250'000'000;
constexpr int held_looks = 60;                            // 15 s within one duty
constexpr double stop_s = 5;

sigset_t end_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

}  // namespace

void Service::block_signals() {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    const sigset_t set = end_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void Service::start() {
    thread_ = std::thread(&Service::run, this);
    watchdog_ = std::thread(&Service::watch, this);
}

void Service::engage(Duties duties) {
    std::lock_guard<std::mutex> lock(duties_mutex_);
    duties_ = std::move(duties);
    engaged_ = true;
}

void Service::disengage() {
    std::lock_guard<std::mutex> lock(duties_mutex_);
    if (engaged_ && state_.first_ns.load()) add_row(state_.end_ns.load() ? state_.end_ns.load() : now_ns());
    engaged_ = false;
}

void Service::finish() {
    {
        std::lock_guard<std::mutex> lock(end_mutex_);
        finished_.store(true);
    }
    end_.notify_all();
    if (thread_.joinable()) thread_.join();
    if (watchdog_.joinable()) watchdog_.join();
}

void Service::force_exit_after(double seconds, int code) {
    exit_code_.store(code);
    exit_at_.store(seconds > 0 ? now_ns() + to_ns(seconds) : INT64_MAX);
}

void Service::on_signal(int number) {
    const int code = 128 + number;
    state_.stop(code, number == SIGINT ? "interrupted (SIGINT)" : "terminated (SIGTERM)");
    if (exit_at_.load() == INT64_MAX) force_exit_after(5, code);
}

void Service::run() {
    const sigset_t set = end_signals();
    while (!finished_.load()) {
        const int64_t now = now_ns();
        // Whoever is to end may be held in a call of the middleware.
        if (state_.stopped.load() && exit_at_.load() == INT64_MAX) {
            const int code = state_.ending().code;
            force_exit_after(stop_s, code == exit_done ? exit_middleware : code);
        }
        int64_t wake = now + idle_ns;
        {
            std::lock_guard<std::mutex> lock(duties_mutex_);
            in_duty_.store(true);
            if (engaged_) tick(now);
            in_duty_.store(false);
            duties_done_.fetch_add(1);
            // In the measured interval nothing needs the short tick: fewer wake-ups beside the hot thread.
            if (engaged_ && state_.stage.load() == Stage::measured && next_row_ && !state_.stopped.load())
                wake = std::max(now + 1'000'000, std::min(next_row_, next_alive_));
            wake = std::min(wake, state_.stage_until_ns.load());
        }
        const int64_t left = std::max<int64_t>(wake - now_ns(), 0);
        const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
        const int number = sigtimedwait(&set, nullptr, &timeout);
        if (number > 0) on_signal(number);
    }
}

// Calls nothing of a middleware and takes no lock that one might hold, so that nothing blocks it.
void Service::watch() {
    std::unique_lock<std::mutex> lock(end_mutex_);
    uint64_t seen = 0;
    int held = 0;
    while (!end_.wait_for(lock, std::chrono::nanoseconds(watch_ns), [&] { return finished_.load(); })) {
        // Counted in looks, not in time: a process that was stopped for a while has not been held.
        held = in_duty_.load() && duties_done_.load() == seen ? held + 1 : 0;
        seen = duties_done_.load();
        const bool late = now_ns() >= exit_at_.load();
        if (!late && held < held_looks) continue;
        const char text[] = "k8sdds-perftest: the middleware blocks; ending without it\n";
        pollfd err{STDERR_FILENO, POLLOUT, 0};
        if (poll(&err, 1, 0) == 1 && write(STDERR_FILENO, text, sizeof text - 1) < 0) {}
        _exit(late ? exit_code_.load() : exit_middleware);
    }
}

void Service::move_stage(int64_t now) {
    int64_t until = state_.stage_until_ns.load();
    if (now < until) return;
    Stage stage = state_.stage.load();
    if (!state_.stage_until_ns.compare_exchange_strong(until, INT64_MAX)) return;
    if (stage == Stage::warm_up) state_.stage.compare_exchange_strong(stage, Stage::measured);
    else if (stage == Stage::measured) state_.stage.compare_exchange_strong(stage, Stage::over);
}

void Service::add_row(int64_t now) {
    const uint64_t samples = state_.samples.load();
    if (samples == counted_ && !rows_.empty() && state_.end_ns.load()) return;
    const uint64_t fresh = samples - counted_;
    rows_.push_back({(now - state_.first_ns.load()) / 1'000'000, fresh, fresh * state_.sample_bytes.load()});
    counted_ = samples;
}

void Service::tick(int64_t now) {
    move_stage(now);
    if (now >= next_alive_) {
        next_alive_ = now + alive_period_;
        duties_.alive();
    }
    duties_.check(now);
    const int64_t first = state_.first_ns.load();
    if (!first || state_.end_ns.load()) return;
    if (!next_row_) {
        next_row_ = first + row_ns;
        next_interval_ = first + interval_ns;
    }
    if (now >= next_row_) {
        add_row(now);
        next_row_ += (now - next_row_) / row_ns * row_ns + row_ns;
    }
    if (now >= next_interval_) {
        duties_.interval();
        next_interval_ += (now - next_interval_) / interval_ns * interval_ns + interval_ns;
    }
}

std::vector<TimelineRow> Service::timeline() { return rows_; }

}  // namespace k8sdds
