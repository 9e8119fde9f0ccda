// Whether the samples that a sender announced in END have arrived.
#pragma once

#include <cstdint>

namespace k8sdds {

// A sender that has ended is complete when all its samples have arrived, or when no more arrive. A best-effort sender is over
// earlier, so that the measured interval does not include the wait for samples that are lost.
struct Completion {
    bool ended = false, over = false, complete = false;
    uint64_t sent = 0;                        // announced when it ended
    uint64_t received_before = 0;
    int64_t last_progress_ns = 0;

    // Returns whether samples have arrived since the last call.
    bool progressed(uint64_t received, int64_t now) {
        if (received == received_before) return false;
        received_before = received;
        last_progress_ns = now;
        return true;
    }

    // Call it after progressed(). Without reliability, `quiet_ns` is ignored.
    void update(int64_t now, bool reliable, int64_t quiet_ns) {
        if (!ended || complete) return;
        const int64_t idle_ns = now - last_progress_ns;
        complete = received_before >= sent || idle_ns > (reliable ? quiet_ns : complete_ns);
        over = over || complete || (!reliable && idle_ns > over_ns);
    }

private:
    // How long no sample has arrived before a best-effort sender that has ended counts as over, and as complete.
    static constexpr int64_t over_ns = 5'000'000, complete_ns = 100'000'000;
};

}  // namespace k8sdds
