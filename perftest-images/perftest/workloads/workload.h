// The publisher's side of a test: what it sends, and what it does with the answers. Subscribers are the same for all
// workloads: they count samples and answer pings.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "backend.h"
#include "histogram.h"
#include "options.h"
#include "participant.h"
#include "state.h"

namespace k8sdds {

// What a workload works with. The publisher owns all of it and outlives the workload.
struct WorkloadContext {
    const Options& options;
    const Settings& settings;
    Backend& backend;
    State& state;
    Histogram& histogram;                     // written only by the thread that calls on_pong()
    Sample sample;                            // template of every sample: run, publisher and payload
};

// Numbers the samples of a stage. The writers take turns, and each of them writes its instances in turn.
class Numbering {
public:
    explicit Numbering(const Options& options)
        : writers_(static_cast<uint16_t>(options.topics * options.writers)),
          instances_(static_cast<uint32_t>(options.instances)) {}

    // The instances continue their turn, because a queue may be divided among them.
    void restart() {
        writer_ = 0;
        sequence_ = 0;
    }
    void number(Sample& sample) const {
        sample.writer = writer_;
        sample.sequence = sequence_;
        sample.instance = instance_;
    }
    void advance() {
        if (++writer_ < writers_) return;
        writer_ = 0;
        ++sequence_;
        if (++instance_ == instances_) instance_ = 0;
    }

private:
    const uint16_t writers_;
    const uint32_t instances_;
    uint16_t writer_ = 0;
    uint32_t sequence_ = 0, instance_ = 0;
};

// Ends the run when the subscribers have taken no sample for longer than the peer timeout.
void stop_if_blocked_since(const Options&, State&, int64_t since_ns, int64_t now);
// Repeats a write that did not succeed. Returns false if the sample was not written and the test is over.
bool retry_write(const Options&, State&, Backend&, const Sample&, Written);

class Workload {
public:
    explicit Workload(const WorkloadContext& context)
        : options_(context.options), backend_(context.backend), state_(context.state), histogram_(context.histogram),
          sample_(context.sample), subscribers_(context.settings.subscribers) {}
    virtual ~Workload() = default;

    // Sends the warm-up and the measured samples. Called once, by the main thread, when all subscribers have started.
    virtual void run() = 0;

    // Called before run(): whether all subscribers read the same clock as this publisher.
    void set_shared_clock(bool shared) { shared_clock_ = shared; }

    // Handles an answer to a ping. Called by one thread at a time, concurrently with run().
    virtual void on_pong(const Sample&) = 0;

    // Called by the main thread when the reports have arrived; no pong is handled after it returns.
    virtual void stop() {}

    // Pings of the measured interval.
    uint64_t pings_sent() const { return pings_sent_.load(); }
    uint64_t pongs_received() const { return pongs_received_.load(); }
    virtual uint64_t pongs_timed_out() const;

    // How long the samples of a workload with a schedule are due, in ns; 0 without a schedule.
    virtual int64_t scheduled_ns() const { return 0; }

    // How many bytes the middleware had sent again when the measured interval began; missing if it does not count them.
    std::optional<uint64_t> retransmitted_before() const { return retransmitted_before_; }

    // Of a workload with a schedule.
    virtual std::optional<Schedule> schedule() const { return std::nullopt; }

protected:
    void stop_if_blocked_since(int64_t since_ns, int64_t now) {
        k8sdds::stop_if_blocked_since(options_, state_, since_ns, now);
    }
    bool retry_write(const Sample& sample, Written written) {
        return k8sdds::retry_write(options_, state_, backend_, sample, written);
    }
    // Waits for the end of the warm-up; after it, begin_measured_stage() starts the measured interval.
    void begin_warm_up();
    void begin_measured_stage(int64_t now, int64_t grace_ns = 0);     // the stage ends this long after -executionTime
    void end_measured_stage();

    const Options& options_;
    Backend& backend_;
    State& state_;
    Histogram& histogram_;
    Sample sample_;
    const unsigned subscribers_;
    bool shared_clock_ = false;
    std::atomic<uint64_t> pings_sent_{0}, pongs_received_{0};

private:
    std::optional<uint64_t> retransmitted_before_;
};

// Returns the workload that the options select.
std::unique_ptr<Workload> make_workload(const WorkloadContext&);

}  // namespace k8sdds
