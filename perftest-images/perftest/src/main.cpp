// The main program: parses the command line, runs the test, prints the summary, and returns the exit code.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "credentials.h"
#include "discovery.h"
#include "histogram_log.h"
#include "housekeeping.h"
#include "loader.h"
#include "node.h"
#include "output.h"
#include "publisher.h"
#include "settings.h"
#include "sockets.h"
#include "subscriber.h"

namespace k8sdds {
namespace {

// An output file, opened before the test starts, so that a wrong path does not cost a measurement.
class OutputFile {
public:
    void open(const char* option, const std::string& path) {
        if (path.empty()) return;
        file_ = std::fopen(path.c_str(), "w");
        if (!file_)
            throw UsageError(std::string(option) + ": " + path + ": " + std::strerror(errno) + "; give another file");
    }
    ~OutputFile() { if (file_) std::fclose(file_); }
    std::FILE* get() const { return file_; }
    void flush(const char* option) {
        if (file_ && (std::fflush(file_) != 0 || std::ferror(file_))) log_line("%s: %s", option, std::strerror(errno));
    }

private:
    std::FILE* file_ = nullptr;
};

// Prints the interval lines; called only by the housekeeping thread.
class IntervalPrinter {
public:
    IntervalPrinter(const State& state, const Histogram& histogram, const Participant& participant, Output& output)
        : state_(state), histogram_(histogram), participant_(participant), output_(output) {}

    void print() {
        const int64_t now = now_ns();
        if (!previous_ns_) previous_ns_ = state_.first_ns.load();
        const double elapsed = (now - previous_ns_) / 1e9, since_first = (now - state_.first_ns.load()) / 1e9;
        const double cpu = state_.cpu_s();
        const Results r = participant_.results();
        Interval i;
        i.length = r.data_length;
        i.samples = state_.samples.load();
        i.lost = r.lost;
        i.rate = elapsed > 0 ? static_cast<double>(i.samples - samples_) / elapsed : 0;
        i.average_rate = since_first > 0 ? static_cast<double>(i.samples) / since_first : 0;
        const uint64_t bytes = state_.bytes_of(i.samples);
        i.mbps = elapsed > 0 ? mbps(static_cast<double>(bytes - bytes_) / elapsed, 1) : 0;
        i.average_mbps = since_first > 0 ? mbps(static_cast<double>(bytes) / since_first, 1) : 0;
        i.latency = histogram_.last();
        i.latency_mean = histogram_.mean();
        i.latency_std = histogram_.stddev();
        i.latency_min = histogram_.min();
        i.latency_max = histogram_.max();
        i.cpu_percent = percent_of_host(cpu - cpu_, elapsed);
        output_.interval(i);
        previous_ns_ = now;
        samples_ = i.samples;
        bytes_ = bytes;
        cpu_ = cpu;
    }

private:
    const State& state_;
    const Histogram& histogram_;
    const Participant& participant_;
    Output& output_;
    int64_t previous_ns_ = 0;
    uint64_t samples_ = 0, bytes_ = 0;
    double cpu_ = 0;
};

void write_histogram(const Histogram& histogram, const std::string& tag, const State& state, const char* option,
                     OutputFile& file) {
    const std::string log = histogram_log(histogram, tag, state.first_epoch_s.load(), state.measured_s());
    std::fputs(log.c_str(), file.get());
    file.flush(option);
}

void write_histograms(const Report& report, OutputFile& file) {
    const auto write = [&](const Histogram& histogram, const std::string& tag) {
        write_histogram(histogram, tag, report.state, "-histogramFile", file);
    };
    if (!report.options.graph) return write(report.histogram, latency_name(report));
    for (const FlowResult& flow : report.results.flows) {
        if (flow.publishes) continue;
        write(*flow.delays, (flow.arrivals.shared_clock ? "one_way:" : "one_way_realtime:") + flow.flow);
        write(*flow.chain, (flow.shared_chain_clock ? "chain:" : "chain_realtime:") + flow.flow);
    }
}

void write_timeline(Housekeeping& housekeeping, OutputFile& timeline) {
    for (const TimelineRow& row : housekeeping.timeline())
        std::fprintf(timeline.get(), "%lld,%llu,%llu\n", static_cast<long long>(row.elapsed_ms),
                     static_cast<unsigned long long>(row.samples), static_cast<unsigned long long>(row.bytes));
    timeline.flush("-timelineFile");
}

void write_arrivals(const Participant& participant, OutputFile& arrivals) {
    participant.write_arrivals(arrivals.get());
    arrivals.flush("-arrivalsFile");
}

// The output files. In a scan, the results of all lengths follow each other.
struct Files {
    OutputFile histogram, timeline, inter_arrival, arrivals, slow;
};

struct Outcome {
    int code = exit_done;
    int64_t next_length = 0;                  // of the next step of a scan; 0: none
};

// Opens the middleware. Returns false, and stops the run, if that fails.
bool open_middleware(Backend& backend, Participant& participant, State& state, Housekeeping& housekeeping, Report& report) {
    const Options& options = report.options;
    housekeeping.force_exit_after(options.discovery_timeout + 5, exit_middleware);
    try {
        state.created_ns.store(now_ns());
        backend.open(*report.settings, participant);
        if (options.dscp) set_own_dscp(static_cast<int>(options.dscp));
        report.facts = backend.facts();
        if (options.verbosity > 1)
            log_line("%s %s on %s (%s), socket receive buffer %d bytes", options.middleware.c_str(),
                report.middleware_version.c_str(), report.facts.interface.c_str(), report.facts.address.c_str(),
                report.facts.receive_buffer);
    } catch (const std::exception& error) {
        state.stop(exit_middleware, std::string("middleware error: ") + error.what());
    }
    housekeeping.force_exit_after(0, 0);
    return state.exit_status().code != exit_middleware;
}

void write_files(const Report& report, Housekeeping& housekeeping, Files& files) {
    if (files.timeline.get()) write_timeline(housekeeping, files.timeline);
    if (files.histogram.get()) write_histograms(report, files.histogram);
    if (files.inter_arrival.get())
        write_histogram(*report.gaps, "inter_arrival", report.state, "-interArrivalFile", files.inter_arrival);
}

void print_result(const Report& report, Output& output) {
    const ExitStatus& exit = report.exit_status;
    if (exit.code == exit_usage) return log_line("%s", exit.reason.c_str());
    const bool measured = report.state.first_ns.load() != 0;
    if (measured || report.options.output_format == "json") output.summary(report);
    const Results& r = report.results;
    if (report.options.verbosity > 0 && r.foreign_samples + r.foreign_messages)
        log_line("ignored %llu samples and %llu messages that no peer of this run sent",
                 static_cast<unsigned long long>(r.foreign_samples), static_cast<unsigned long long>(r.foreign_messages));
    if (exit.code != exit_done) log_line("%s", exit.reason.c_str());
    else if (report.options.verbosity > 0) log_line("test ended");
}

// Runs the test with one length, from opening the middleware to closing it.
Outcome measure(Options& options, Output& output, Files& files) {
    auto backend = load_backend(options.middleware);
    const Settings settings = make_settings(options);
    State state;
    Histogram histogram;
    const std::unique_ptr<Histogram> gaps = files.inter_arrival.get() ? std::make_unique<Histogram>() : nullptr;
    std::unique_ptr<Participant> participant;
    if (options.graph) participant = std::make_unique<Node>(options, settings, *backend, state);
    else if (options.pub) participant = std::make_unique<Publisher>(options, settings, *backend, state, histogram);
    else participant = std::make_unique<Subscriber>(options, settings, *backend, state, histogram, gaps.get());
    Housekeeping housekeeping(state, std::clamp<int64_t>(to_ns(options.peer_timeout) / 5, 50'000'000, second_ns));
    housekeeping.start();

    Report report{options, &settings, state, histogram, gaps.get(), {}, {}, {}, backend->version(), {}};
    if (open_middleware(*backend, *participant, state, housekeeping, report)) {
        IntervalPrinter intervals(state, histogram, *participant, output);
        housekeeping.attach({[&] { participant->assert_liveliness(); },
                             [&](int64_t now) { participant->check_peers(now); },
                             [&] { if (!options.no_intervals) intervals.print(); },
                             [&] { if (files.arrivals.get()) write_arrivals(*participant, files.arrivals); }});
        participant->run();
        state.end_measured(now_ns());
        housekeeping.detach();
        report.effective_qos = backend->effective_qos();   // some values depend on the path to the peers
        report.dscp = own_dscp();
    }
    report.exit_status = state.exit_status();
    report.results = participant->results();
    write_files(report, housekeeping, files);
    if (files.arrivals.get()) write_arrivals(*participant, files.arrivals);
    if (files.slow.get()) {
        participant->write_slow(files.slow.get());
        files.slow.flush("-slowFile");
    }
    print_result(report, output);

    Outcome outcome{report.exit_status.code, options.pub ? options.next_length : report.results.next_length};
    const bool complete = outcome.code != exit_done || !outcome.next_length;
    // Closing the middleware may block. That must not delay the end, but before the next step of a scan the peers wait.
    if (complete) housekeeping.force_exit_after(2, outcome.code);
    else housekeeping.force_exit_after(options.discovery_timeout, exit_middleware);
    backend->close();
    return outcome;
}

// Throws UsageError if the middleware does not support the options, with one of the lengths.
void check_lengths(Options options) {
    const auto backend = load_backend(options.middleware);
    if (!options.raw_mode.empty() && !backend->has_raw_modes())
        throw UsageError("-rawMode: is an option of -middleware raw only; remove it");
    check_security(options, backend->requires_subject_order());
    for (const int64_t length : options.lengths) {
        options.data_length = length;
        const Settings settings = make_settings(options);
        if (settings.members && !backend->has_members())
            throw UsageError("-discoveryTest: " + options.middleware + " does not have it; give cyclonedds, fastdds or zenoh");
        if (!backend->has_transport(settings.transport))
            throw UsageError("-transport: " + options.middleware + " does not have " + options.transport + "; give UDPv4");
        const std::string problem = backend->unsupported(settings);
        if (!problem.empty()) throw UsageError(problem);
    }
}

// Runs the test with each length. A subscriber follows its publishers, which announce the next length.
int measure_all(Options& options) {
    check_lengths(options);
    if (options.check) return exit_done;
    if (options.lock_memory && mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        throw UsageError(std::string("-lockMemory: ") + std::strerror(errno) +
                         "; raise the limit RLIMIT_MEMLOCK, or add the capability IPC_LOCK");
    Files files;
    files.histogram.open("-histogramFile", options.histogram_file);
    files.timeline.open("-timelineFile", options.timeline_file);
    files.inter_arrival.open("-interArrivalFile", options.inter_arrival_file);
    files.arrivals.open("-arrivalsFile", options.arrivals_file);
    files.slow.open("-slowFile", options.slow_file);
    if (files.timeline.get()) std::fprintf(files.timeline.get(), "elapsed_ms,samples,bytes\n");
    if (files.arrivals.get()) std::fprintf(files.arrivals.get(), "publisher,at_us,samples,fresh,late,delay_us,max_delay_us\n");
    if (files.slow.get()) std::fprintf(files.slow.get(), "publisher,at_us,delay_us\n");
    if (options.test() == Test::discovery) return measure_discovery(options, files.histogram.get());
    Housekeeping::block_signals();
    const auto output = options.output_format == "json" ? make_json_output(options) : make_csv_output(options);
    for (;; ++options.step) {
        const bool last = options.step + 1 >= options.lengths.size();
        options.next_length = last ? 0 : options.lengths[options.step + 1];
        const Outcome outcome = measure(options, *output, files);
        if (outcome.code != exit_done || !outcome.next_length) return outcome.code;
        options.data_length = outcome.next_length;
    }
}

int run(int argc, char** argv) {
    try {
        Options options = parse_options(argc, argv);
        if (options.help) {
            std::printf("%s", help_text().c_str());
            return exit_done;
        }
        if (options.version) {
            std::string names;
            for (const std::string& name : available_backends()) names += " " + name;
            std::printf("k8sdds-perftest %s\nbackends:%s\n", K8SDDS_VERSION, names.c_str());
            return exit_done;
        }
        return measure_all(options);
    } catch (const UsageError& error) {
        log_line("%s", error.what());
        return exit_usage;
    } catch (const std::exception& error) {
        log_line("%s", error.what());
        return exit_middleware;
    }
}

}  // namespace
}  // namespace k8sdds

int main(int argc, char** argv) {
    int code = k8sdds::run(argc, argv);
    const bool written = std::fflush(nullptr) == 0 && !std::ferror(stdout);
    if (!written && code == k8sdds::exit_done) {
        k8sdds::log_line("cannot write to standard output; free space, or redirect it elsewhere");
        code = k8sdds::exit_middleware;
    }
    _exit(code);                                           // skips the destructors of the middleware's libraries
}
