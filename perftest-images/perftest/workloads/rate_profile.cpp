#include "rate_profile.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "text_lines.h"

namespace k8sdds {
namespace {

struct Parts {
    std::string shape;
    std::vector<double> numbers;
};

// Returns false if a part after the first is not a number.
bool split(const std::string& text, Parts& parts) {
    size_t from = text.find(':');
    parts.shape = text.substr(0, from);
    while (from != std::string::npos) {
        const size_t to = text.find(':', ++from);
        const std::optional<double> number = decimal_number(text.substr(from, to == std::string::npos ? to : to - from));
        if (!number) return false;
        parts.numbers.push_back(*number);
        from = to;
    }
    return true;
}

void require(bool condition, const std::string& problem) {
    if (!condition) throw std::invalid_argument(problem);
}

}  // namespace

RateProfile::RateProfile(const std::string& text, double rate, double duration_s) : period_ns_(1e9 / rate) {
    Parts parts;
    require(split(text, parts) && ((parts.shape == "constant" && parts.numbers.empty()) ||
                                   ((parts.shape == "ramp" || parts.shape == "burst") && parts.numbers.size() == 1) ||
                                   (parts.shape == "on-off" && parts.numbers.size() == 2)),
            "'" + text + "' is not a profile; give constant, ramp:FROM, burst:N or on-off:ON:OFF");
    if (parts.shape == "ramp") {
        shape_ = Shape::ramp;
        const double from = parts.numbers[0];
        require(from <= 1e7 && from != rate, "FROM of a ramp is a rate other than that of -pubRate, from 0 to 10000000");
        from_ = from / 1e9;
        ramp_ns_ = duration_s * 1e9;
        slope_ = (rate / 1e9 - from_) / ramp_ns_;
    } else if (parts.shape == "burst") {
        shape_ = Shape::burst;
        const double samples = parts.numbers[0];
        require(samples >= 1 && samples <= 1e6 && samples == std::floor(samples),
                "N of a burst is a number of samples from 1 to 1000000");
        group_ = static_cast<uint64_t>(samples);
        period_ns_ *= samples;
    } else if (parts.shape == "on-off") {
        shape_ = Shape::on_off;
        const double on_ns = parts.numbers[0] * 1e9, off_ns = parts.numbers[1] * 1e9;
        require(on_ns >= period_ns_ && off_ns > 0 && on_ns + off_ns <= 86400e9,
                "ON and OFF are seconds above 0, with at least one sample of -pubRate in ON and at most a day in total");
        group_ = static_cast<uint64_t>(std::llround(on_ns / period_ns_));
        cycle_ns_ = on_ns + off_ns;
    }
}

// Each value follows from the number alone, so that rounding errors do not add up.
int64_t RateProfile::due_ns(uint64_t number) const {
    if (shape_ == Shape::recorded) return recorded_->due_ns(number);
    const auto n = static_cast<double>(number);
    double ns = n * period_ns_;
    if (shape_ == Shape::ramp) {
        // n samples are due within t if from × t + slope × t² / 2 = n.
        const double ramped = (from_ + slope_ * ramp_ns_ / 2) * ramp_ns_;
        ns = n < ramped ? 2 * n / (from_ + std::sqrt(from_ * from_ + 2 * slope_ * n))
                        : ramp_ns_ + (n - ramped) * period_ns_;
        if (number == 0) ns = 0;                           // a ramp from 0 would divide by 0
    } else if (shape_ == Shape::burst) {
        ns = static_cast<double>(number / group_) * period_ns_;
    } else if (shape_ == Shape::on_off) {
        ns = static_cast<double>(number / group_) * cycle_ns_ + static_cast<double>(number % group_) * period_ns_;
    }
    return std::llround(ns);
}

uint64_t RateProfile::samples_before(int64_t ns) const {
    uint64_t low = 0, high = 1;                            // due_ns(number) >= ns from a number in (low, high] on
    while (due_ns(high - 1) < ns) high *= 2;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (due_ns(middle) < ns) low = middle + 1;
        else high = middle;
    }
    return low;
}

}  // namespace k8sdds
