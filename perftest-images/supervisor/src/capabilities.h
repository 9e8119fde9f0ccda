// The Linux capabilities of a participant.
#pragma once

#include <string>
#include <vector>

namespace k8sdds {

struct CapabilityReport {
    std::vector<std::string> kept;     // capabilities of the participant
    std::vector<std::string> missing;  // capabilities of a default container that this process does not have
    bool bounding_limited = false;     // the bounding set is limited to a default container's
};

// Returns what drop_capabilities() would leave (drop), or the current capabilities. Makes no changes.
CapabilityReport plan_capabilities(bool drop, bool keep_ipc_lock);

bool has_capability(int capability);

// Drops all capabilities that a default Kubernetes container (containerd) does not have, except IPC_LOCK if it is to be
// kept. The caller must set no_new_privs afterwards. Returns an error message; empty on success.
std::string drop_capabilities(bool keep_ipc_lock);

}  // namespace k8sdds
