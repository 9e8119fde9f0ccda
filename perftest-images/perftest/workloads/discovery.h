// A discovery test (-discoveryTest): how long the members of a fleet take to find each other.
#pragma once

#include <cstdio>

#include "options.h"

namespace k8sdds {

// Starts the processes of the fleet, and prints what they report. `histograms` gets the times of all pairs, with the tags
// "match" and "rematch"; null: not wanted. Returns the exit code: members that do not find each other are a result.
int measure_discovery(Options&, std::FILE* histograms);

}  // namespace k8sdds
