// What happens to a link by command: from the command or from a stated time on, until the next change.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace k8sdds {

struct Outage {
    double share = 0;                       // of the packets that are dropped; 1: nothing enters or leaves the link
    double mbit = 0;                        // the rate of the link meanwhile; 0: that of its configuration

    bool down() const { return share >= 1; }
};

// The states of a link over time. What happens to a packet does not depend on when the program looks.
class Outages {
public:
    Outage at(std::int64_t time) const;
    // From this time on, the link has this state, instead of those that were to follow.
    void change(std::int64_t time, const Outage& outage);
    void clear() { changes_.clear(); }

private:
    std::vector<std::pair<std::int64_t, Outage>> changes_;     // by time
};

// Reads `off`, a loss in percent, or `rate MBIT`. Throws Failure.
Outage parse_outage(const std::string& words);

struct Change {
    Outage outage;
    std::int64_t time = 0;                  // 0: now
};

// Reads what parse_outage() does, or this and `at` with a time in µs. Throws Failure.
Change parse_change(const std::string& words);

}  // namespace k8sdds
