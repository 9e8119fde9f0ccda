// The samples that one writer of a publisher has sent, as they arrive at a subscriber.
#pragma once

#include <optional>

#include "backend.h"
#include "instances.h"
#include "tracker.h"

namespace k8sdds {

struct Stream {
    Tracker tracker;
    std::optional<Instances> instances;                    // of a keyed topic

    // Returns whether the sample is new. Called only by the receiving thread.
    bool record(const Sample& sample) {
        if (!tracker.record(sample.sequence)) return false;
        if (instances) instances->record(sample.instance, sample.sequence);
        return true;
    }

    uint64_t out_of_order() const { return instances ? instances->out_of_order() : tracker.out_of_order(); }
};

}  // namespace k8sdds
