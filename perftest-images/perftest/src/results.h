// What a run has found, as the output prints it.
#pragma once

#include <cstdint>
#include <vector>

namespace k8sdds {

struct SubscriberReport {
    unsigned id = 0;
    bool reported = false;
    uint64_t received = 0, duplicates = 0, out_of_order = 0;
    int64_t first_ns = 0, last_ns = 0;
};

struct Results {
    double handshake_s = 0;                   // 0: not all matched
    double discovery_s = 0;
    bool matched = false, sent_known = false;
    uint64_t sent = 0;                        // a subscriber's: the sum of what END told
    uint64_t received = 0, duplicates = 0, out_of_order = 0, lost = 0;
    uint64_t warm_up_received = 0;            // a subscriber's: not measured, but carried by the network
    uint64_t pings_sent = 0, pongs_received = 0, pongs_timed_out = 0;
    int64_t first_ns = 0, last_ns = 0;
    uint64_t data_length = 0;
    bool latency_test = false;
    double warm_up_s = 0;
    std::vector<SubscriberReport> subscribers;
};

}  // namespace k8sdds
