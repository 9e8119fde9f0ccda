// A flow of a graph at one of its subscribers: counts and times its samples, and passes them to the flows that follow it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "age.h"
#include "completion.h"
#include "graph.h"
#include "histogram.h"
#include "join.h"
#include "participant.h"
#include "tracker.h"

namespace k8sdds {

class Executor;

class FlowInput {
public:
    explicit FlowInput(const Flow&);

    enum class Taken { refused, duplicate, warm_up, measured };    // refused: not as the graph describes it
    // Called by the receiving thread.
    Taken receive(const Sample&, int64_t now);

    // Adds a flow that follows this one: the `index`-th of its inputs.
    void feed(Executor& executor, Join& join, size_t index) { followers_.push_back({&executor, &join, index}); }

    // Sets what makes a time of this process one of the publisher; and whether both read the same clock.
    void set_clock(int64_t difference_ns, bool shared, bool shared_by_chain);
    void observe_age(int64_t begin, int64_t length) { age_.observe(begin, begin + length, flow_.deadline_ns); }

    // What the publisher announced in END.
    struct Announced {
        bool ended = false;
        uint64_t sent = 0;
        int64_t clock_step_ns = 0;
    };

    // Call these with the state's mutex.
    void end(uint64_t sent, int64_t clock_difference_ns);
    // Returns whether all samples have arrived, or no more arrive.
    bool update(int64_t now, int64_t quiet_ns);
    bool complete() const { return completion_.complete; }
    bool over() const { return completion_.over; }
    Announced announced() const { return {completion_.ended, completion_.sent, clock_step_ns_}; }

    const Flow& flow() const { return flow_; }
    // Distinct measured samples that have been passed on, and their bytes.
    uint64_t received() const { return received_.load(std::memory_order_acquire); }
    int64_t last_arrival_ns() const { return last_arrival_ns_.load(std::memory_order_relaxed); }
    FlowResult result(const Graph&, const Announced&) const;

private:
    struct Follower {
        Executor* executor;
        Join* join;
        size_t index;
    };

    const Flow& flow_;
    std::vector<Follower> followers_;
    // Written only by the receiving thread.
    Tracker tracker_;
    Age age_;
    Histogram delays_;
    const std::unique_ptr<Histogram> chain_;               // null if the flow is its own origin
    std::atomic<uint64_t> received_{0}, bytes_{0}, late_{0};
    std::atomic<int64_t> last_arrival_ns_{0};              // of any sample, also of the warm-up

    std::atomic<int64_t> clock_difference_ns_{0};
    std::atomic<bool> shared_clock_{false}, shared_chain_clock_{false};
    Completion completion_;                                // guarded by the state's mutex
    int64_t clock_step_ns_ = 0;                            // guarded by it too
};

}  // namespace k8sdds
