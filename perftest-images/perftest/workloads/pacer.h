// Paces samples at a fixed rate on an absolute schedule, so that one late sample does not delay the following ones.
#pragma once

#include <algorithm>

#include "options.h"
#include "state.h"

namespace k8sdds {

class Pacer {
public:
    Pacer(const Options& options, const State& state)
        : state_(state), period_(options.rate > 0 ? 1e9 / options.rate : 0), spins_(options.rate_spins) {}

    bool is_limited() const { return period_ > 0; }
    void restart(int64_t now) { next_ = static_cast<double>(now); }

    // Returns when the next sample is due, or at once if the stage has changed. A schedule that is more than 100 ms
    // behind starts again from now: missed samples are not sent in a burst.
    void wait(Stage stage) {
        int64_t now = now_ns();
        if (next_ == 0 || now - next_ > 100e6) next_ = static_cast<double>(now);
        while (now < next_ && state_.stage.load(std::memory_order_relaxed) == stage) {
            if (!spins_) {
                const int64_t left = std::min<int64_t>(static_cast<int64_t>(next_) - now, 10'000'000);
                const timespec slice{0, std::max<int64_t>(left, 0)};
                clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, nullptr);
            }
            now = now_ns();
        }
        next_ += period_;
    }

private:
    const State& state_;
    double period_, next_ = 0;                // ns
    bool spins_;
};

}  // namespace k8sdds
