// Waits until samples are due, on an absolute schedule.
#pragma once

#include <sys/prctl.h>

#include <algorithm>

#include "options.h"
#include "rate_profile.h"
#include "state.h"

namespace k8sdds {

class Pacer {
public:
    Pacer(const Options& options, State& state)
        : state_(state), limited_(options.rate > 0),
          profile_(options.rate_profile, limited_ ? options.rate : 1, options.execution_time),
          spin_(options.rate_spins ? INT64_MAX : std::min<int64_t>(final_spin_ns, period_ns() / 4)) {}

    bool is_limited() const { return limited_; }
    int64_t period_ns() const { return static_cast<int64_t>(profile_.period_ns()); }
    uint64_t samples_before(int64_t ns) const { return profile_.samples_before(ns); }

    // Starts the schedule: its first sample is due now. Call it in the thread that waits.
    void restart(int64_t now) {
        start_ = now;
        number_ = 0;
        prctl(PR_SET_TIMERSLACK, 1UL);                     // ns; the kernel's default delays each wake-up by up to 50 us
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

    // Returns when the next sample is due, or at once if the stage has changed.
    void wait(Stage stage) {
        const int64_t due_ns = due();
        if (due_ns - now_ns() > spin_) state_.sleep_until(due_ns - spin_, stage, [] { return false; });
        while (now_ns() < due_ns && state_.stage.load(std::memory_order_relaxed) == stage) {}
    }

private:
    static constexpr int64_t final_spin_ns = 20'000;       // a sleeping thread needs some microseconds to wake up

    State& state_;
    const bool limited_;
    const RateProfile profile_;                            // has no meaning without a rate
    const int64_t spin_;                                   // ns before a sample is due
    int64_t start_ = 0;
    uint64_t number_ = 0;                                  // of the next sample since the start
};

}  // namespace k8sdds
