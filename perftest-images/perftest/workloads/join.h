// Decides when a flow with inputs (`after`) has a sample: when a new sample of each input has arrived since the last one.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "backend.h"

namespace k8sdds {

// A sample that is to be computed and sent. Times are of this process's clock.
struct Trigger {
    int64_t due_ns = 0;                       // when the last input arrived
    int64_t origin_ns = 0;                    // when the origin was due
    Phase phase = Phase::warm_up;             // of the origin
};

// Only the receiving thread calls arrived(), and only the thread that computes calls front() and pop().
class Join {
public:
    static constexpr uint32_t capacity = 1024;             // triggers that wait; more are dropped

    explicit Join(size_t inputs) : fresh_(inputs), missing_(inputs), triggers_(capacity) {}

    // Takes a sample of an input, which arrived at the due time of `input`. Returns whether a sample is to be computed. Its
    // origin is that of the newest sample of the first input.
    bool arrived(size_t index, const Trigger& input, int64_t input_due_ns) {
        if (index == 0 && input.phase < next_.phase) return false;     // a sample of the warm-up that was overtaken
        if (index == 0 && (input.phase > next_.phase || input_due_ns >= first_due_ns_)) {
            next_.origin_ns = input.origin_ns;
            next_.phase = input.phase;
            first_due_ns_ = input_due_ns;
        }
        missing_ -= !fresh_[index];
        fresh_[index] = true;
        if (missing_) return false;
        missing_ = fresh_.size();
        fresh_.assign(missing_, false);
        next_.due_ns = input.due_ns;
        return push();
    }

    // Returns the next trigger; null if none waits.
    const Trigger* front() const {
        const uint32_t taken = taken_.load(relaxed);
        return taken == added_.load(std::memory_order_acquire) ? nullptr : &triggers_[taken % capacity];
    }
    void pop() { taken_.store(taken_.load(relaxed) + 1, std::memory_order_release); }

    // Returns how many samples of the measured interval there had to be.
    uint64_t measured() const { return measured_.load(); }

private:
    static constexpr auto relaxed = std::memory_order_relaxed;

    bool push() {
        if (next_.phase == Phase::measured) measured_.store(measured_.load(relaxed) + 1, relaxed);
        const uint32_t added = added_.load(relaxed);
        if (added - taken_.load(std::memory_order_acquire) == capacity) return false;
        triggers_[added % capacity] = next_;
        added_.store(added + 1, std::memory_order_release);
        return true;
    }

    // Of the receiving thread.
    std::vector<bool> fresh_;
    size_t missing_;                          // inputs without a new sample
    Trigger next_;
    int64_t first_due_ns_ = INT64_MIN;        // of the newest sample of the first input

    std::vector<Trigger> triggers_;           // a ring
    std::atomic<uint32_t> added_{0}, taken_{0};
    std::atomic<uint64_t> measured_{0};
};

}  // namespace k8sdds
