// The interface of a publisher or subscriber to the main program, and the results of its run.
#pragma once

#include <cstdint>
#include <vector>

#include "backend.h"

namespace k8sdds {

struct SubscriberReport {
    unsigned id = 0;
    bool reported = false;
    uint64_t received = 0, duplicates = 0, out_of_order = 0;
    int64_t first_ns = 0, last_ns = 0;        // the subscriber's monotonic clock
};

struct Results {
    double handshake_s = 0;                   // 0: some endpoints did not match
    double discovery_s = 0;
    bool matched = false, sent_known = false;
    uint64_t sent = 0;                        // at a subscriber the sum of what its publishers announced in END
    uint64_t received = 0, duplicates = 0, out_of_order = 0, lost = 0;
    uint64_t warm_up_received = 0;            // subscriber only: samples that the network carried before the interval
    uint64_t pings_sent = 0, pongs_received = 0, pongs_timed_out = 0;
    int64_t first_ns = 0, last_ns = 0;
    uint64_t data_length = 0;
    bool latency_test = false;
    double warm_up_s = 0;
    std::vector<SubscriberReport> subscribers;
};

class Participant : public Events {
public:
    virtual ~Participant() = default;
    virtual void run() = 0;                   // from discovery to DONE, or until the state is stopped
    virtual Results results() const = 0;      // from any thread, as far as they are known

    // Called by the housekeeping thread.
    virtual void assert_liveliness() = 0;     // announces to the peers that this process is alive
    virtual void check_peers(int64_t now) = 0;    // stops the run if a peer is lost
};

}  // namespace k8sdds
