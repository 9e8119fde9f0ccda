// Waits until a time as precisely as the machine can: it sleeps until shortly before, and polls the clock for the rest.
#pragma once

#include <sys/prctl.h>

#include <algorithm>

#include "state.h"

namespace k8sdds {

class PreciseWait {
public:
    PreciseWait(State& state, bool sleeps) : state_(state), sleeps_(sleeps) {}

    // Call it in the thread that waits, whose wake-ups it makes precise.
    void prepare() { prctl(PR_SET_TIMERSLACK, 1UL); }      // ns; the kernel's default delays each wake-up by up to 50 us

    // Returns at this time, or at once if the stage is not this one any more or if the condition holds, which State::wake()
    // makes it check. Counts how long it spins in the measured interval: this CPU time is that of the measurement, not of
    // the middleware.
    template <typename Condition>
    void until(int64_t due_ns, Stage stage, Condition condition) {
        const int64_t wake_ns = due_ns - final_spin_ns_;
        int64_t now = now_ns();
        if (sleeps_ && now < wake_ns) {
            state_.sleep_until(wake_ns, stage, condition);
            now = now_ns();
            if (now >= wake_ns) adapt_final_spin(now - wake_ns);
        } else if (now < due_ns) {
            final_spin_ns_ -= final_spin_ns_ / 1024;       // sleeps again once in a while
        }
        const int64_t spins_from = now;
        while (now < due_ns && state_.stage.load(std::memory_order_relaxed) == stage && !condition()) now = now_ns();
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
    const bool sleeps_;
    int64_t final_spin_ns_ = 20'000;                       // before a sample is due
};

}  // namespace k8sdds
