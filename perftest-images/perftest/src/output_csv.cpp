// The CSV output: PerfTest 4.x's titles, headers and column widths, byte for byte.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "output.h"

namespace k8sdds {

double percent_of_host(double cpu_s, double elapsed_s) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return elapsed_s > 0 && processors > 0 ? 100 * cpu_s / elapsed_s / static_cast<double>(processors) : 0;
}

double mbps(double samples_per_s, double length) { return samples_per_s * length * 8 / 1e6; }

double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double rate_of(const Report& report) {
    const Results& r = report.results;
    if (report.options.sub) return r.common ? r.common->rate() : 0;
    double elapsed = report.state.measured_s();
    // The interval of a node ends when its flows have ended, but its samples are those that were due in the schedule.
    if (report.options.graph) elapsed = std::min(elapsed, report.options.execution_time);
    return elapsed > 0 ? static_cast<double>(report.options.pub ? r.sent : r.received) / elapsed : 0;
}

double length_of(const Report& report) {
    const Results& r = report.results;
    const CommonInterval common = r.common.value_or(CommonInterval{});
    const uint64_t samples = report.options.pub ? r.sent : report.options.sub ? common.samples : r.received;
    const uint64_t bytes = report.options.sub ? common.bytes : r.measured_bytes;
    if (!r.lengths_vary || !samples) return static_cast<double>(r.data_length);
    return static_cast<double>(bytes) / static_cast<double>(samples);
}

const char* latency_name(const Report& report) {
    switch (report.results.test) {
    case Test::latency: return "latency";
    case Test::paced:
        if (report.options.pub) return "half_round_trip";
        return report.results.arrivals && report.results.arrivals->shared_clock ? "one_way" : "one_way_realtime";
    case Test::throughput:
    case Test::graph:                                      // each flow has histograms
    case Test::discovery: break;
    }
    return "loaded_latency";
}

namespace {

#define MU "\xce\xbc"                          // Greek mu, as PerfTest prints it

class CsvOutput final : public Output {
public:
    explicit CsvOutput(const Options& options) : options_(options) {}

    void interval(const Interval& i) override {
        if (times_nothing()) return;
        if (!headed_) head(i.length);
        if (options_.pub)
            std::printf("%14llu, %12.0f, %8.0f, %8.1f, %8.0f, %8.0f", static_cast<unsigned long long>(i.length),
                        i.latency / 1e3, i.latency_mean / 1e3, i.latency_std / 1e3, i.latency_min / 1e3,
                        i.latency_max / 1e3);
        else
            std::printf("%14llu, %13llu, %10.0f, %13.0f, %8.1f, %9.1f, %12llu, %16.2f",
                        static_cast<unsigned long long>(i.length), static_cast<unsigned long long>(i.samples), i.rate,
                        i.average_rate, i.mbps, i.average_mbps,
                        static_cast<unsigned long long>(i.lost), percent(i.lost, i.samples + i.lost));
        end_row(i.cpu_percent);
    }

    void summary(const Report& report) override {
        headed_ = false;                                   // a scan continues with another length
        if (times_nothing()) {
            if (options_.verbosity > 0) log_line("no samples were timed; to measure their latency, add -loadedLatency");
            return;
        }
        const Results& r = report.results;
        const double cpu = percent_of_host(report.state.cpu_s(), report.state.measured_s());
        if (options_.pub) {
            const Histogram& h = report.histogram;
            if (!options_.no_intervals) std::printf("One-way Latency Summary:\n");
            std::printf("Sample Size (Bytes), Ave (" MU "s), Std (" MU "s), Min (" MU "s), Max (" MU "s), 50%% (" MU
                        "s), 90%% (" MU "s), 99%% (" MU "s), 99.99%% (" MU "s), 99.9999%% (" MU "s)%s\n",
                        cpu_title());
            std::printf("%19llu, %8.0f, %8.1f, %8.0f, %8.0f, %8.0f, %8.0f, %8.0f, %11.0f, %13.0f",
                        static_cast<unsigned long long>(r.data_length), h.mean() / 1e3, h.stddev() / 1e3, h.min() / 1e3,
                        h.max() / 1e3, h.percentile(50) / 1e3, h.percentile(90) / 1e3, h.percentile(99) / 1e3,
                        h.percentile(99.99) / 1e3, h.percentile(99.9999) / 1e3);
        } else {
            const double rate = rate_of(report);
            if (!options_.no_intervals) std::printf("Throughput Summary:\n");
            std::printf("Sample Size (Bytes), Total Samples, Avg Samples/s,    Avg Mbps, Lost Samples, Lost Samples (%%)%s\n",
                        cpu_title());
            std::printf("%19llu, %13llu, %13.0f, %11.1f, %12llu, %16.2f", static_cast<unsigned long long>(r.data_length),
                        static_cast<unsigned long long>(r.received), rate, mbps(rate, length_of(report)),
                        static_cast<unsigned long long>(r.lost), percent(r.lost, r.received + r.lost));
        }
        end_row(cpu);
        if (options_.pub && options_.verbosity > 0) report_outliers(report.histogram);
    }

private:
    // The table of a publisher contains latencies: zeros in it would look like measured values.
    bool times_nothing() const { return options_.pub && !options_.times_samples(); }

    // PerfTest's table has every percentile, however few values there are.
    static void report_outliers(const Histogram& h) {
        for (const double percent : {50.0, 90.0, 99.0, 99.99, 99.9999}) {
            if (h.knows(percent)) continue;
            log_line("of %llu values, fewer than 10 episodes are above the percentiles from %g%% on: a few stalls decide them",
                     static_cast<unsigned long long>(h.count()), percent);
            return;
        }
    }

    const char* cpu_title() const { return options_.cpu ? ", CPU (%)" : ""; }

    void head(uint64_t length) {
        headed_ = true;
        if (options_.pub)
            std::printf("Intervals One-Way Latency for %llu Bytes:\n"
                        "Length (Bytes), Latency (" MU "s), Ave (" MU "s), Std (" MU "s), Min (" MU "s), Max (" MU "s)%s\n",
                        static_cast<unsigned long long>(length), cpu_title());
        else
            std::printf("Interval Throughput for %llu Bytes:\n"
                        "Length (Bytes), Total Samples,  Samples/s, Avg Samples/s,     Mbps,  Avg Mbps, Lost Samples, "
                        "Lost Samples (%%)%s\n",
                        static_cast<unsigned long long>(length), cpu_title());
    }

    void end_row(double cpu) {
        if (options_.cpu) std::printf(", %7.2f", cpu);
        std::printf("\n");
        std::fflush(stdout);
    }

    const Options& options_;
    bool headed_ = false;
};

}  // namespace

std::unique_ptr<Output> make_csv_output(const Options& options) { return std::make_unique<CsvOutput>(options); }

}  // namespace k8sdds
