// What happens to a link by command, until the next one.
#pragma once

#include <string>

namespace k8sdds {

struct Outage {
    double share = 0;                       // of the packets that are dropped; 1: nothing enters or leaves the link
    double mbit = 0;                        // the rate of the link meanwhile; 0: that of its configuration

    bool down() const { return share >= 1; }
};

// Reads `off`, a loss in percent, or `rate MBIT`. Throws Failure.
Outage parse_outage(const std::string& words);

}  // namespace k8sdds
