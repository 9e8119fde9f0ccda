#include "housekeeping.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace k8sdds {
namespace {

constexpr int64_t interval_ns = second_ns, idle_ns = 10'000'000, watch_ns = 5'000'000'000;
constexpr int blocked_checks = 3;                          // 15 s within one round of tasks
constexpr double stop_s = 5;
constexpr int wake_signal = SIGUSR1;                       // ends a wait of the housekeeping thread, which may take 1 s
constexpr int kill_signal = SIGUSR2;                       // ends the process as SIGKILL does, but keeps what it has measured

sigset_t handled_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, wake_signal, kill_signal}) sigaddset(&set, number);
    return set;
}

}  // namespace

void Housekeeping::block_signals() {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    const sigset_t set = handled_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void Housekeeping::start() {
    thread_ = std::thread(&Housekeeping::run, this);
    watchdog_ = std::thread(&Housekeeping::watch, this);
}

void Housekeeping::attach(PeriodicTasks tasks) {
    std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks_ = std::move(tasks);
    attached_ = true;
}

void Housekeeping::detach() {
    std::lock_guard<std::mutex> lock(tasks_mutex_);
    if (attached_ && state_.first_ns.load()) add_row(state_.end_ns.load() ? state_.end_ns.load() : now_ns());
    attached_ = false;
}

void Housekeeping::finish() {
    {
        std::lock_guard<std::mutex> lock(finish_mutex_);
        finished_.store(true);
    }
    finish_.notify_all();
    if (thread_.joinable()) {
        pthread_kill(thread_.native_handle(), wake_signal);
        thread_.join();
    }
    if (watchdog_.joinable()) watchdog_.join();
}

void Housekeeping::force_exit_after(double seconds, int code) {
    {
        std::lock_guard<std::mutex> lock(finish_mutex_);
        exit_code_.store(code);
        exit_at_.store(seconds > 0 ? now_ns() + to_ns(seconds) : INT64_MAX);
    }
    finish_.notify_all();
}

// The middleware does not notify its peers, and the kernel closes the sockets: for the peers, it is a crash.
void Housekeeping::die() {
    {
        std::lock_guard<std::mutex> lock(tasks_mutex_);
        if (attached_ && tasks_.save) tasks_.save();
    }
    kill(getpid(), SIGKILL);
}

void Housekeeping::on_signal(int number) {
    if (number == kill_signal) return die();
    const int code = 128 + number;
    state_.stop(code, number == SIGINT ? "interrupted (SIGINT)" : "terminated (SIGTERM)");
    if (exit_at_.load() == INT64_MAX) force_exit_after(stop_s, code);
}

void Housekeeping::run() {
    const sigset_t set = handled_signals();
    while (!finished_.load()) {
        const int64_t now = now_ns();
        // stop() may notify a thread just before it begins to wait.
        if (state_.stopped.load()) state_.changed.notify_all();
        // After a stop the main thread may still be blocked in a call of the middleware.
        if (state_.stopped.load() && exit_at_.load() == INT64_MAX) {
            const int code = state_.exit_status().code;
            force_exit_after(stop_s, code == exit_done ? exit_middleware : code);
        }
        int64_t wake = now + idle_ns;
        {
            std::lock_guard<std::mutex> lock(tasks_mutex_);
            in_tasks_.store(true);
            if (attached_) tick(now);
            in_tasks_.store(false);
            rounds_done_.fetch_add(1);
            // Nothing is due earlier within the measured interval: sleep longer, to disturb the measuring thread
            // less.
            if (attached_ && state_.stage.load() == Stage::measured && next_row_ && !state_.stopped.load())
                wake = std::max(now + 1'000'000, std::min(next_row_, next_liveliness_));
            wake = std::min(wake, state_.stage_until_ns.load());
        }
        const int64_t left = std::max<int64_t>(wake - now_ns(), 0);
        const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
        const int number = sigtimedwait(&set, nullptr, &timeout);
        if (number > 0 && number != wake_signal) on_signal(number);
    }
}

// The watchdog thread. It calls nothing of the middleware and takes no lock that is held during such a call, so that
// the middleware cannot block it.
void Housekeeping::watch() {
    std::unique_lock<std::mutex> lock(finish_mutex_);
    uint64_t last_round = 0;
    int checks = 0;
    int64_t next_check = now_ns() + watch_ns;
    while (!finished_.load()) {
        const std::chrono::steady_clock::time_point wake{
            std::chrono::nanoseconds(std::min(next_check, exit_at_.load()))};
        finish_.wait_until(lock, wake);
        const int64_t now = now_ns();
        const bool late = now >= exit_at_.load();
        if (now >= next_check) {
            // Counts checks instead of time: a process that was suspended (SIGSTOP) was not blocked by the middleware.
            checks = in_tasks_.load() && rounds_done_.load() == last_round ? checks + 1 : 0;
            last_round = rounds_done_.load();
            next_check = now + watch_ns;
        }
        if (!late && checks < blocked_checks) continue;
        const char text[] = "k8sdds-perftest: the middleware blocks; exiting without closing it\n";
        pollfd err{STDERR_FILENO, POLLOUT, 0};
        if (poll(&err, 1, 0) == 1 && write(STDERR_FILENO, text, sizeof text - 1) < 0) {}
        _exit(late ? exit_code_.load() : exit_middleware);
    }
}

void Housekeeping::advance_stage(int64_t now) {
    int64_t until = state_.stage_until_ns.load();
    if (now < until) return;
    Stage stage = state_.stage.load();
    if (!state_.stage_until_ns.compare_exchange_strong(until, INT64_MAX)) return;
    if (stage == Stage::warm_up) state_.advance(stage, Stage::measured);
    else if (stage == Stage::measured) state_.advance(stage, Stage::over);
}

void Housekeeping::add_row(int64_t now) {
    const uint64_t samples = state_.samples.load(), bytes = state_.bytes_of(samples);
    if (samples == counted_ && !rows_.empty() && state_.end_ns.load()) return;
    rows_.push_back({(now - state_.first_ns.load()) / 1'000'000, samples - counted_, bytes - counted_bytes_});
    counted_ = samples;
    counted_bytes_ = bytes;
}

void Housekeeping::tick(int64_t now) {
    advance_stage(now);
    if (now >= next_liveliness_) {
        next_liveliness_ += (now - next_liveliness_) / liveliness_period_ * liveliness_period_ + liveliness_period_;
        tasks_.assert_liveliness();
    }
    tasks_.check_peers(now);
    const int64_t first = state_.first_ns.load();
    if (!first || state_.end_ns.load()) return;
    const int64_t row_ns = state_.row_ns.load();
    if (!next_row_) {
        next_row_ = first + row_ns;
        next_interval_ = first + interval_ns;
        if (liveliness_period_ >= row_ns) next_liveliness_ = next_row_;     // one wake-up for both
    }
    if (now >= next_row_) {
        add_row(now);
        next_row_ += (now - next_row_) / row_ns * row_ns + row_ns;
    }
    if (now >= next_interval_) {
        tasks_.interval();
        next_interval_ += (now - next_interval_) / interval_ns * interval_ns + interval_ns;
    }
}

std::vector<TimelineRow> Housekeeping::timeline() { return rows_; }

}  // namespace k8sdds
