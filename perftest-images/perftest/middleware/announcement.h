// What a process does with an announcement that the network delivered, before anything uses it.
#pragma once

#include "backend.h"

namespace k8sdds {

// Whether an announcement belongs to another run or another version of the program, or has a value that no peer sends.
bool is_foreign(const Announcement&, const Settings&);

}  // namespace k8sdds
