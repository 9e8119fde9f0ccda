// The interface of a publisher or subscriber to the main program, and the results of its run.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "age.h"
#include "announcement.h"
#include "backend.h"
#include "histogram.h"
#include "options.h"

namespace k8sdds {

struct SubscriberReport {
    unsigned id = 0;
    bool reported = false;
    uint64_t received = 0, duplicates = 0, out_of_order = 0;
    int64_t first_ns = 0, last_ns = 0;        // the subscriber's monotonic clock
    uint64_t instances = 0;                   // of a keyed topic that have arrived
};

// The instances of a keyed topic that arrived, of the publisher with the fewest.
struct InstanceCounts {
    uint64_t received = 0;                    // instances with a sample
    uint64_t fewest_samples = 0, most_samples = 0;    // of an instance; over all publishers
};

// What a publisher had to send by a schedule, and how well it kept the schedule.
struct Schedule {
    uint64_t samples = 0;                     // due in the measured interval
    uint64_t late = 0;                        // written more than one period after they were due
    int64_t max_lateness_ns = 0;              // from when a sample was due to when its write began
};

// When the samples of a schedule arrived at a subscriber.
struct Arrivals {
    bool shared_clock = false;                // with all publishers; otherwise realtime clocks were compared
    int64_t clock_step_ns = 0;                // largest change between realtime clocks that were compared
    int64_t deadline_ns = 0;                  // after a sample was due; of the last publisher that started
    uint64_t missed = 0;                      // samples that arrived after the deadline
    double jitter_ns = 0;                     // mean difference between the delays of consecutive samples
    std::optional<Freshness> freshness;       // the worst of the publishers; missing without a schedule
};

// The part of the measured interval in which all publishers sent, as a subscriber saw it: from the first sample of the
// publisher that began last to the last sample of the publisher that ended first.
struct CommonInterval {
    int64_t first_ns = 0, last_ns = 0;        // equal if there is none
    uint64_t samples = 0, bytes = 0;          // of all publishers, including those at both ends
    double rate() const {                     // n samples are n - 1 intervals
        return last_ns > first_ns ? static_cast<double>(samples - 1) * 1e9 / static_cast<double>(last_ns - first_ns) : 0;
    }
};

// Notices that endpoints of a peer have disappeared for good. A peer that aborts announces why, but the middleware may
// deliver the announcement in another thread, after the endpoints are gone.
class UnmatchedTimer {
public:
    bool expired(bool all_matched, int64_t now) {
        if (all_matched) since_ns_ = 0;
        else if (!since_ns_) since_ns_ = now;
        return since_ns_ && now - since_ns_ >= 300'000'000;
    }

private:
    int64_t since_ns_ = 0;                    // 0: all endpoints are matched
};

// The samples of one writer, if a publisher has several.
struct WriterCounts {
    unsigned publisher = 0, writer = 0, topic = 0;
    uint64_t received = 0, lost = 0, duplicates = 0, out_of_order = 0;
};

// A flow of a graph at one of its nodes.
struct FlowResult {
    std::string flow, publisher;              // names of the flow and of its node
    bool publishes = false;                   // whether this process is that node
    uint64_t sent = 0;
    bool sent_known = false;                  // a subscriber knows it when the publisher has ended
    uint64_t bytes = 0;                       // sent, or received without duplicates
    Schedule schedule;                        // publisher: when samples were due or triggered

    // Subscriber.
    uint64_t received = 0, lost = 0, duplicates = 0, out_of_order = 0;
    Arrivals arrivals;
    bool shared_chain_clock = false;          // with all nodes from the origin on
    const Histogram *delays = nullptr, *chain = nullptr;
};

struct Results {
    double handshake_s = 0;                   // 0: some endpoints did not match
    double discovery_s = 0;
    bool matched = false, sent_known = false;
    uint64_t sent = 0;                        // at a subscriber the sum of what its publishers announced in END
    uint64_t received = 0, duplicates = 0, out_of_order = 0, lost = 0;
    uint64_t warm_up_received = 0;            // subscriber only: samples that the network carried before the interval
    uint64_t foreign_samples = 0, foreign_messages = 0;   // see Participant
    std::optional<uint64_t> retransmitted_bytes;   // publisher only, since the measured interval began; missing: unknown
    uint64_t pings_sent = 0, pongs_received = 0, pongs_timed_out = 0;
    int64_t first_ns = 0, last_ns = 0;        // at a subscriber over all publishers
    std::optional<CommonInterval> common;     // subscriber only
    bool reached_limit = false;               // publisher only: all samples of -numIter were sent
    uint64_t data_length = 0;                 // of the longest sample, if lengths vary
    bool lengths_vary = false;
    uint64_t measured_bytes = 0, warm_up_bytes = 0;       // sent, or received without duplicates; of a warm-up, received
    Test test = Test::throughput;
    std::optional<Schedule> schedule;         // publisher in a paced test
    std::optional<Arrivals> arrivals;         // subscriber in a paced test
    std::optional<InstanceCounts> instances;  // subscriber of a keyed topic
    std::vector<WriterCounts> writers;        // subscriber, if a publisher has several
    int64_t next_length = 0;                  // subscriber: of the next step of a scan; 0: none
    double warm_up_s = 0;
    std::vector<SubscriberReport> subscribers;
    std::vector<FlowResult> flows;            // of a node of a graph
};

// Ends a run that would measure another transport.
constexpr char unshared_sample[] =
    "middleware error: a sample came by TCP instead of shared memory; give all participants the same /dev/shm";

class Participant : public Events {
public:
    explicit Participant(const Settings& settings) : settings_(settings) {}
    virtual ~Participant() = default;
    virtual void run() = 0;                   // from discovery to DONE, or until the state is stopped
    virtual Results results() const = 0;      // from any thread, as far as they are known
    virtual void write_arrivals(std::FILE*) const {}    // -arrivalsFile, after run()
    virtual void write_slow(std::FILE*) const {}        // -slowFile, after run()

    // Called by the housekeeping thread.
    virtual void assert_liveliness() = 0;     // announces to the peers that this process is alive
    virtual void check_peers(int64_t now) = 0;    // stops the run if a peer is lost

    void on_announcement(const Announcement& a) final {
        if (a.role == settings_.role && a.role != Role::node) return;
        if (is_foreign(a, settings_)) foreign_messages_.fetch_add(1, std::memory_order_relaxed);
        else on_peer(a);
    }

protected:
    virtual void on_peer(const Announcement&) = 0;   // an announcement of a peer's role, with valid values

    // Counts a sample that no peer of this run sent. Called by the thread that delivers samples.
    void ignore_sample() {
        constexpr auto relaxed = std::memory_order_relaxed;
        foreign_samples_.store(foreign_samples_.load(relaxed) + 1, relaxed);
    }
    void count_foreign(Results& results) const {
        results.foreign_samples = foreign_samples_.load();
        results.foreign_messages = foreign_messages_.load();
    }
    // Explains to a user whose peers were not found that others were there; usually empty.
    std::string ignored_messages() const {
        const uint64_t ignored = foreign_messages_.load();
        return ignored ? "; ignored " + std::to_string(ignored) + " messages of another run (K8SDDS_NONCE) or version" : "";
    }

private:
    const Settings& settings_;
    std::atomic<uint64_t> foreign_samples_{0}, foreign_messages_{0};
};

}  // namespace k8sdds
