// The standard output: PerfTest's CSV tables, or one JSON document. A publisher prints latency, a subscriber prints
// throughput.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "histogram.h"
#include "options.h"
#include "participant.h"
#include "state.h"

namespace k8sdds {

// The data of the summary.
struct Report {
    const Options& options;
    const Settings* settings = nullptr;       // null until the backend is open
    const State& state;
    const Histogram& histogram;
    const Histogram* gaps = nullptr;          // times between samples, if they were requested
    Results results;
    TransportFacts facts;
    EffectiveQos effective_qos;
    std::string middleware_version;
    ExitStatus exit_status;
    std::set<int> dscp = {};                  // of all sockets, at the end of the measured interval
};

// The counters of one interval, read by the housekeeping thread.
struct Interval {
    uint64_t length = 0;                      // bytes of a sample; of the longest if lengths vary
    int64_t latency = 0, latency_min = 0, latency_max = 0;   // ns
    double latency_mean = 0, latency_std = 0;
    uint64_t samples = 0, lost = 0;           // since the start of the measured interval
    double rate = 0, average_rate = 0;
    double mbps = 0, average_mbps = 0;
    double cpu_percent = 0;                   // of the whole host, within the interval
};

class Output {
public:
    virtual ~Output() = default;
    virtual void interval(const Interval&) = 0;
    virtual void summary(const Report&) = 0;
};

std::unique_ptr<Output> make_csv_output(const Options&);
std::unique_ptr<Output> make_json_output(const Options&);

double percent_of_host(double cpu_s, double elapsed_s);
double mbps(double samples_per_s, double length);
double percent(uint64_t part, uint64_t whole);

// Returns what the histogram of this process holds: "latency", "loaded_latency", "one_way",
// "one_way_realtime" or "half_round_trip".
const char* latency_name(const Report&);

// Returns samples per second: of a subscriber in the common interval of its publishers, of a publisher in its measured
// interval; of a node, received in its measured interval.
double rate_of(const Report&);

// Returns the mean bytes of the samples in that interval.
double length_of(const Report&);

}  // namespace k8sdds
