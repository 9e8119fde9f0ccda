// Writes HdrHistogram's log format V2, which PyPI's hdrhistogram and the other HdrHistogram implementations read.
#pragma once

#include <string>
#include <vector>

#include "histogram.h"

namespace k8sdds {

// Returns the first `used` counts of the buckets of a Histogram in V2, deflated, Base64.
std::string encode_counts(const std::vector<uint64_t>& counts, size_t used);

// Returns a log with one interval that began at start_s (seconds since the epoch) and lasted length_s. A second line with
// the tag TAG_episodes has, as the count of each bucket, the number of episodes of values above it.
std::string histogram_log(const Histogram&, const std::string& tag, double start_s, double length_s);

}  // namespace k8sdds
