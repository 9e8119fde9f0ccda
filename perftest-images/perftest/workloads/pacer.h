// Waits until samples are due, on an absolute schedule.
#pragma once

#include <sys/prctl.h>

#include <algorithm>

#include "options.h"
#include "rate_profile.h"
#include "state.h"

namespace k8sdds {

// Returns when samples are due by the options; without a rate, it has no meaning. Throws std::invalid_argument.
inline RateProfile profile_of(const Options& options) {
    if (options.recorded) return RateProfile(options.recorded);
    return RateProfile(options.rate_profile, options.rate > 0 ? options.rate : 1, options.execution_time);
}

class Pacer {
public:
    Pacer(const Options& options, State& state)
        : state_(state), limited_(options.rate > 0),
          profile_(profile_of(options)),
          sleeps_(!options.rate_spins) {}

    bool is_limited() const { return limited_; }
    int64_t period_ns() const { return static_cast<int64_t>(profile_.period_ns()); }
    uint64_t samples_before(int64_t ns) const { return profile_.samples_before(ns); }

    // Returns how long after the start this sample is due.
    int64_t due_after(uint64_t number) const { return profile_.due_ns(number); }

    // Starts the schedule: its first sample is due now. Call it in the thread that waits, whose wake-ups it makes precise.
    void start(int64_t now) {
        prctl(PR_SET_TIMERSLACK, 1UL);                     // ns; the kernel's default delays each wake-up by up to 50 us
        restart(now);
    }
    void restart(int64_t now) {
        start_ = now;
        number_ = 0;
    }

    // When the next sample is due.
    int64_t due() const { return start_ + profile_.due_ns(number_); }

    // Takes the next sample from the schedule, which a late sample does not shift.
    void advance() { ++number_; }

    // Starts again from now if the schedule is more than 100 ms behind: missed samples are not sent in a burst.
    void skip_missed(int64_t now) {
        constexpr int64_t limit_ns = 100'000'000;
        if (now - due() > limit_ns) restart(now);
    }

    // Returns when the next sample is due, or at once if the stage has changed. Counts how long it spins in the measured
    // interval: this CPU time is that of the measurement, not of the middleware.
    void wait(Stage stage) {
        const int64_t due_ns = due(), wake_ns = due_ns - final_spin_ns_;
        int64_t now = now_ns();
        if (sleeps_ && now < wake_ns) {
            state_.sleep_until(wake_ns, stage, [] { return false; });
            now = now_ns();
            adapt_final_spin(now - wake_ns);
        } else if (now < due_ns) {
            final_spin_ns_ -= final_spin_ns_ / 1024;       // sleeps again once in a while
        }
        const int64_t spins_from = now;
        while (now < due_ns && state_.stage.load(std::memory_order_relaxed) == stage) now = now_ns();
        if (stage != Stage::measured || now == spins_from) return;
        // A thread that was preempted while it spun spent at most the time until the sample was due.
        state_.spin_ns.store(state_.spin_ns.load(std::memory_order_relaxed) + std::min(now, due_ns) - spins_from,
                             std::memory_order_relaxed);
    }

private:
    // A later wake-up is one of a busy core, which a longer spin cannot make up for.
    static constexpr int64_t longest_spin_ns = 100'000;

    // Makes the final spin as long as the recent wake-ups took. If that is longer than a period, nothing sleeps: late
    // wake-ups would collect several samples and send them in a burst.
    void adapt_final_spin(int64_t lateness_ns) {
        if (lateness_ns > longest_spin_ns) return;
        final_spin_ns_ = std::max(lateness_ns, final_spin_ns_ - final_spin_ns_ / 64);
    }

    State& state_;
    const bool limited_;
    const RateProfile profile_;
    const bool sleeps_;
    int64_t final_spin_ns_ = 20'000;                       // before a sample is due
    int64_t start_ = 0;
    uint64_t number_ = 0;                                  // of the next sample since the start
};

}  // namespace k8sdds
