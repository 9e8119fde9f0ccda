// The capabilities a participant runs with.
#pragma once

#include <string>
#include <vector>

namespace k8sdds {

struct CapabilityReport {
    std::vector<std::string> kept;     // what the participant may use
    std::vector<std::string> missing;  // what a default container has and this process lacks
    bool bounding_limited = false;     // the bounding set is that of a default container too
};

// What drop_capabilities will do (drop), or what there is (keep). Changes nothing.
CapabilityReport plan_capabilities(bool drop);

// Leaves this process what a default Kubernetes container (containerd) has. To be followed by no_new_privs.
// Returns "" or what went wrong.
std::string drop_capabilities();

}  // namespace k8sdds
