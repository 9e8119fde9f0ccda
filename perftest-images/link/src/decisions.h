// What happens to the n-th packet of a direction: whether it is lost, its delay, whether it is sent at once or twice.
// The decisions are those of Linux' netem with the same parameters, with two exceptions, which decisions.cpp explains.
#pragma once

#include <cstdint>
#include <string>

#include "config.h"
#include "random.h"

namespace k8sdds {

class Losses {
public:
    Losses(const LossConfig& config, std::uint64_t seed, const std::string& link, bool up)
        : config_(config), loss_(seed, link, up, Purpose::kLoss), state_(seed, link, up, Purpose::kLossState) {}
    void restart() { number_ = 0, bad_ = false; }
    bool next();                            // whether the next packet is lost
    bool applies_to(bool udp) const { return udp || !config_.udp_only; }

private:
    const LossConfig& config_;
    Stream loss_, state_;
    std::uint64_t number_ = 0;
    bool bad_ = false;
};

class Delays {
public:
    Delays(const DelayConfig& config, std::uint64_t seed, const std::string& link, bool up)
        : config_(config), delay_(seed, link, up, Purpose::kDelay), reorder_(seed, link, up, Purpose::kReorder) {}
    void restart() { number_ = 0, last_ = 0; }

    struct Delay {
        std::int64_t ns;
        bool at_once;                       // overtakes the packets in front of it
    };
    Delay next();

private:
    double standard();                      // the next value of the distribution with mean 0 and jitter 1

    const DelayConfig& config_;
    Stream delay_, reorder_;
    std::uint64_t number_ = 0;
    double last_ = 0;                       // normal score of the last packet
};

class Duplicates {
public:
    Duplicates(double share, std::uint64_t seed, const std::string& link, bool up)
        : share_(share), stream_(seed, link, up, Purpose::kDuplicate) {}
    void restart() { number_ = 0; }
    bool next() { return share_ > 0 && stream_.at(number_++) < share_; }

private:
    double share_;
    Stream stream_;
    std::uint64_t number_ = 0;
};

}  // namespace k8sdds
