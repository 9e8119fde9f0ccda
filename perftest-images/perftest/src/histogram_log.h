// HdrHistogram's log format, V2: what PyPI's hdrhistogram and the other HdrHistogram readers read.
#pragma once

#include <string>

#include "histogram.h"

namespace k8sdds {

std::string encode_histogram(const Histogram&);            // V2, deflated, base64

// One interval that began at start_s (seconds since the epoch) and lasted length_s.
std::string histogram_log(const Histogram&, const std::string& tag, double start_s, double length_s);

}  // namespace k8sdds
