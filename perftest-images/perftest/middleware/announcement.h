// What a process does with an announcement that the network delivered, before anything uses it.
#pragma once

#include "backend.h"

namespace k8sdds {

// Whether an announcement belongs to another run or another version of the program, or has a value that no peer sends.
bool is_foreign(const Announcement&, const Settings&);

// In an END of a node: the first of the numbers of samples of its flows.
constexpr unsigned end_values = 2;

}  // namespace k8sdds
