// Writes HdrHistogram's log format V2, which PyPI's hdrhistogram and the other HdrHistogram implementations read.
#pragma once

#include <string>

#include "histogram.h"

namespace k8sdds {

std::string encode_histogram(const Histogram&);            // V2, deflated, Base64

// Returns a log with one interval that began at start_s (seconds since the epoch) and lasted length_s.
std::string histogram_log(const Histogram&, const std::string& tag, double start_s, double length_s);

}  // namespace k8sdds
