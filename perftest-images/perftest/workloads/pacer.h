// Waits until samples are due, on an absolute schedule.
#pragma once

#include "options.h"
#include "precise_wait.h"
#include "rate_profile.h"

namespace k8sdds {

// Returns when samples are due by the options; without a rate, it has no meaning. Throws std::invalid_argument.
inline RateProfile profile_of(const Options& options) {
    if (options.recorded) return RateProfile(options.recorded);
    return RateProfile(options.rate_profile, options.rate > 0 ? options.rate : 1, options.execution_time);
}

class Pacer {
public:
    Pacer(const Options& options, State& state)
        : limited_(options.rate > 0), profile_(profile_of(options)), wait_(state, !options.rate_spins) {}

    bool is_limited() const { return limited_; }
    int64_t period_ns() const { return static_cast<int64_t>(profile_.period_ns()); }
    uint64_t samples_before(int64_t ns) const { return profile_.samples_before(ns); }

    // Returns how long after the start this sample is due.
    int64_t due_after(uint64_t number) const { return profile_.due_ns(number); }

    // Starts the schedule: its first sample is due now. Call it in the thread that waits.
    void start(int64_t now) {
        wait_.prepare();
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

    // Returns when the next sample is due, or at once if the stage has changed.
    void wait(Stage stage) {
        wait_.until(due(), stage, [] { return false; });
    }

private:
    const bool limited_;
    const RateProfile profile_;
    PreciseWait wait_;
    int64_t start_ = 0;
    uint64_t number_ = 0;                                  // of the next sample since the start
};

}  // namespace k8sdds
