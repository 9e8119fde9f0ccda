// Samples in serialized form, for -serialized: Cyclone DDS neither serializes nor deserializes them during the test.
#pragma once

#include <dds/dds.h>

#include <vector>

#include "common.h"

struct ddsi_serdata;

namespace k8sdds {

// Samples that are serialized once and written many times. A sample can be written again when the library has released
// it, which is after its acknowledgment.
class SerializedSamples {
public:
    // Serializes `count` samples. Uses a topic of its own, whose type the library shares with the data topics.
    void create(dds_entity_t participant, const Sample& model, size_t count);
    // Releases them. Call it before the participant is deleted.
    void release();

    // Returns the next sample with the head of this one, and a reference for dds_forwardcdr(); null if it is in use.
    ddsi_serdata* next(const Sample& sample, dds_time_t source_timestamp);

private:
    struct Item {
        ddsi_serdata* serdata;
        uint8_t* head;
    };
    std::vector<Item> items_;
    size_t next_ = 0;
};

// Reads a sample that dds_takecdr() returned. Its payload is valid until release_serialized().
Sample read_serialized(const ddsi_serdata* serdata);
void release_serialized(ddsi_serdata* serdata);

}  // namespace k8sdds
