#include "decisions.h"

#include <algorithm>
#include <cmath>

namespace k8sdds {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kTableEnd = 4;             // netem's tables end at four times the jitter (16-bit values, scale 8192)

// netem's pareto table (iproute2, netem/pareto.c): exponent 3, without its mean 1.5, scaled by 4/3.
double pareto(double u) { return std::min((1 / std::cbrt(u) - 1.5) * 4 / 3, kTableEnd); }

double normal_distribution(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

}  // namespace

// Linux' loss_gilb_ell: first the state changes, then a packet is lost with the probability of the state before.
bool Losses::next() {
    const std::uint64_t n = number_++;
    if (!config_.pattern.empty()) return config_.pattern[n % config_.pattern.size()] == '1';
    if (config_.p == 0) return config_.independent > 0 && loss_.at(n) < config_.independent;
    const double passes = bad_ ? config_.h : config_.k;
    if (state_.at(n) < (bad_ ? config_.r : config_.p)) bad_ = !bad_;
    return loss_.at(n) >= passes;
}

// A correlation mixes the normal score of a packet with that of the packet before, so that the distribution of the delays
// stays the requested one. netem mixes evenly distributed numbers, which narrows their distribution, and then uses their
// lowest digits as the index of its table, which have almost no correlation.
double Delays::standard() {
    const std::uint64_t n = number_;
    const bool normal = config_.distribution == Distribution::kNormal;
    double u = delay_.at(2 * n);
    if (normal || config_.correlation > 0) {
        // Box and Muller: an exactly normal score from two numbers.
        const double fresh = std::sqrt(-2 * std::log(u)) * std::cos(2 * kPi * delay_.at(2 * n + 1));
        const double rho = config_.correlation;
        const double score = n == 0 ? fresh : rho * last_ + std::sqrt(1 - rho * rho) * fresh;
        last_ = score;
        if (normal) return std::clamp(score, -kTableEnd, kTableEnd);
        u = normal_distribution(score);
    }
    // As in netem, the jitter of the uniform distribution is half of its width.
    return config_.distribution == Distribution::kUniform ? 2 * u - 1 : pareto(u);
}

Delays::Delay Delays::next() {
    Delay delay{};
    if (!config_.values_ns.empty())
        delay.ns = config_.values_ns[number_ % config_.values_ns.size()];
    else if (config_.jitter_ns == 0)
        delay.ns = std::llround(config_.mean_ns);
    else  // never before the packet arrives
        delay.ns = std::max<std::int64_t>(0, std::llround(config_.mean_ns + config_.jitter_ns * standard()));
    delay.at_once = config_.reorder > 0 && reorder_.at(number_) < config_.reorder;
    ++number_;
    return delay;
}

}  // namespace k8sdds
