// Messages of the backends without a data type of their own (raw, zenoh) that carry announcements.
#pragma once

#include <cstddef>
#include <optional>

#include "backend.h"

namespace k8sdds {

struct ControlMessage {
    char magic[8];
    Announcement announcement;
};

// Returns the datagram of an announcement in a step of a scan.
ControlMessage control_message(const Announcement&, unsigned step);

// Returns the announcement in a datagram of this step, which anyone may have sent.
std::optional<Announcement> read_control_message(const void* datagram, size_t length, unsigned step);

}  // namespace k8sdds
