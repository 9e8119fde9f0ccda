// The schedule of a stream: when each sample is due, as a function of its number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "recorded_schedule.h"

namespace k8sdds {

class RateProfile {
public:
    // `text` is "constant", "ramp:FROM", "burst:N" or "on-off:ON:OFF" (the argument of -rateProfile). `rate` is in
    // samples per second; a ramp reaches it after `duration_s`. Throws std::invalid_argument with the message for the user.
    RateProfile(const std::string& text, double rate, double duration_s);

    // The schedule of a file (the argument of -schedule).
    explicit RateProfile(std::shared_ptr<const RecordedSchedule> recorded)
        : shape_(Shape::recorded), period_ns_(1e9 / recorded->rate()), recorded_(std::move(recorded)) {}

    // Returns when a sample is due, in ns after the start. The first has the number 0.
    int64_t due_ns(uint64_t number) const;

    // Returns how many samples are due earlier than this after the start.
    uint64_t samples_before(int64_t ns) const;

    // Returns the time from a sample to the next at the full rate; of bursts, from one burst to the next; of a recorded
    // schedule, the mean.
    double period_ns() const { return period_ns_; }

private:
    enum class Shape { constant, ramp, burst, on_off, recorded } shape_ = Shape::constant;
    double period_ns_;
    double from_ = 0, slope_ = 0;             // ramp: initial rate in samples per ns, its increase per ns
    double ramp_ns_ = 0;
    uint64_t group_ = 1;                      // samples of a burst or of an on phase
    double cycle_ns_ = 0;                     // on-off: length of both phases
    std::shared_ptr<const RecordedSchedule> recorded_;    // null for the other shapes
};

}  // namespace k8sdds
