// Sends the flows of a node of a graph, and computes those that follow others. One thread does all of it, as a
// single-threaded executor of ROS 2 does: a computation delays the other samples of the node, but not when its inputs are
// received and timed.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend.h"
#include "join.h"
#include "options.h"
#include "participant.h"
#include "precise_wait.h"
#include "rate_profile.h"
#include "state.h"

namespace k8sdds {

class Executor {
public:
    Executor(const Options&, const Settings&, Backend&, State&, uint32_t run);

    // Returns the join of a flow that this node publishes.
    Join& join_of(size_t writer) { return *outputs_[writer]->join; }
    // Wakes the executor. Any thread may call it, such as when a join has a trigger.
    void notify();

    // Sets when flows with a rate or a schedule begin: the warm-up and the measured interval.
    void schedule(int64_t warm_up_ns, int64_t measured_ns);
    // Does what is due: begins the measured interval, or sends a sample. If nothing is due, waits for it until this time at
    // most, or until notify().
    void step(int64_t until_ns);

    // Whether a flow has ended: after its schedule, or after the last trigger when its inputs are complete; at the latest
    // when the time for samples that are late has passed.
    void end_inputs(size_t writer) { outputs_[writer]->inputs_ended = true; }
    bool has_ended(size_t writer) const { return outputs_[writer]->ended; }
    bool has_ended() const;
    // Returns a flow that has ended since the last call, if there is one.
    std::optional<size_t> take_ended() { return std::exchange(newly_ended_, std::nullopt); }
    uint64_t sent(size_t writer) const { return outputs_[writer]->sent.load(); }
    FlowResult result(size_t writer) const;               // from any thread

private:
    struct Output {
        Output(const Flow&, const Options&, size_t writer);
        const Flow& flow;
        const uint16_t writer;
        std::optional<RateProfile> profile;                // of a flow without inputs
        std::unique_ptr<Join> join;                        // of a flow with inputs
        // Used only by the thread that sends.
        Phase phase = Phase::warm_up;
        uint64_t sequence = 0;                             // of the next sample in the phase
        uint64_t due_samples[2] = {};                      // in each phase, without inputs
        int64_t begin_ns[2] = {};
        bool inputs_ended = false, ended = false;
        // Read by any thread.
        std::atomic<uint64_t> sent{0}, bytes{0}, late{0};
        std::atomic<int64_t> max_lateness_ns{0};

        Trigger next() const;                              // due at INT64_MAX if there is none
        bool has_more() const;                             // whether a sample is due now or later
    };

    Output* earliest(Trigger& trigger) const;
    void send(Output&, const Trigger&);
    void count(Output&, uint64_t length, int64_t lateness_ns);
    void compute(int64_t ns) const;
    bool is_over(int64_t now) const;
    void begin_measured();
    void end_flows();

    const Options& options_;
    Backend& backend_;
    State& state_;
    std::vector<std::unique_ptr<Output>> outputs_;         // by writer
    Sample sample_;
    std::vector<uint8_t> payload_;
    PreciseWait wait_;
    std::atomic<uint32_t> notified_{0};
    uint32_t seen_ = 0;
    std::optional<size_t> newly_ended_;                    // writer
    int64_t measured_ns_ = INT64_MAX, over_ns_ = INT64_MAX;
};

}  // namespace k8sdds
