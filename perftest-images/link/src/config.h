// The configuration: one JSON document that lists links and what each direction of a link does to its packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "failure.h"

namespace k8sdds {

enum class Distribution { kNormal, kUniform, kPareto };

struct DelayConfig {
    double mean_ns = 0, jitter_ns = 0;
    Distribution distribution = Distribution::kNormal;
    double correlation = 0;                 // of successive delays, 0 to 1
    double reorder = 0;                     // share of packets that are sent at once
    std::vector<std::int64_t> values_ns;    // delays in order, instead of a distribution
};

// Independent loss, or the chain of Gilbert and Elliott, or a recorded pattern. All are probabilities, 0 to 1.
struct LossConfig {
    double independent = 0;
    double p = 0;                           // from the good to the bad state; 0: no chain
    double r = 1;                           // from the bad to the good state
    double h = 0, k = 1;                    // that a packet passes in the bad and in the good state
    bool udp_only = false;
    std::string pattern;                    // of '0' (passes) and '1' (lost), repeated
};

struct RateConfig {
    double mbit = 0;                        // 0: unlimited
    std::vector<std::int64_t> trace_ns;     // times at which 1504 bytes may leave, repeated after the last
};

struct QueueConfig {
    std::int64_t packets = 0, bytes = 0;    // 0: unlimited
    double ms = 0;                          // as bytes at the rate; 0: unlimited
    bool codel = false;
};

struct DirectionConfig {
    DelayConfig delay;
    LossConfig loss;
    RateConfig rate;
    QueueConfig queue;
    double duplicate = 0;
};

struct LinkConfig {
    std::string name, near, far;            // near and far: interfaces
    DirectionConfig up, down;               // near to far, far to near
};

struct Config {
    std::uint64_t seed = 0;
    int cpu = -1;                           // -1: wherever the scheduler puts the program
    std::size_t packets = 65536;            // that can be on the way at the same time, in all links
    std::vector<LinkConfig> links;
};

// Throws Failure(kUsage), whose message names the key.
Config parse_config(const std::string& text);

Config read_config(const std::string& path);

}  // namespace k8sdds
