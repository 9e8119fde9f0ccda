// A node of a graph: finds all others, begins with them, sends and receives its flows, and ends with them.
//
// Each node announces READY until all have started, and in it whether it has matched all its peers and knows all nodes. When
// all have and do, the first node of the graph announces START with the time until the measured interval, and each other
// node confirms it to the first one. When a flow has ended, its publisher announces END with the number of its samples. A node that has nothing more to send
// or to receive announces its REPORT; when all have, the first node announces DONE, and all leave.
#pragma once

#include <memory>
#include <vector>

#include "announcer.h"
#include "clock.h"
#include "executor.h"
#include "flow_input.h"
#include "options.h"
#include "participant.h"
#include "receiver.h"
#include "state.h"

namespace k8sdds {

class Node final : public Participant {
public:
    Node(const Options&, const Settings&, Backend&, State&);

    void run() override;
    Results results() const override;
    void assert_liveliness() override { announcer_.send(Kind::alive, run_); }
    void check_peers(int64_t now) override;

    void on_match() override {
        // Matches also change when the other nodes leave.
        if (state_.stage.load() == Stage::waiting) state_.matched_ns.store(now_ns());
        state_.changed.notify_all();
    }
    void on_sample(const Sample&) override;
    void on_received() override {}

private:
    void on_peer(const Announcement&) override;

    // What a node announces of itself in READY, in this order.
    enum class Progress : int64_t { searching, ready, started };

    // Another node, or this one. Guarded by the state's mutex, except `run`.
    struct Peer {
        std::atomic<uint32_t> run{0};                      // 0: unknown
        Identity identity;
        int64_t clock_id = 0, clock_difference_ns = 0;
        Progress progress = Progress::searching;
        bool reported = false, left = false;
        int64_t last_heard_ns = 0;                         // announcement or sample
    };

    bool is_first() const { return id_ == 0; }
    void connect();
    bool discover();
    bool prepare_start();
    void stop_undiscovered();
    void send_ready(Progress, uint16_t to = to_all);
    void send_start();
    void set_clocks();
    void exchange();
    bool update_flows(int64_t now);
    void check_lost(bool matched, int64_t now);
    std::string unfinished() const;
    void send_ends();
    void leave();
    void on_ready(Peer&, const Announcement&);
    void on_end(const Announcement&);
    void on_start(const Announcement&);
    int64_t clock_difference_ns(const Peer&, int64_t offset_ns) const;
    bool knows_all() const;
    template <typename Condition>
    bool all_others(Condition) const;
    template <typename Condition>
    std::string names_of(Condition) const;
    int64_t period_ns() const;

    const Options& options_;
    const Graph& graph_;
    Backend& backend_;
    State& state_;
    Announcer announcer_;
    const uint32_t run_;
    const uint16_t id_;
    const int64_t clock_id_ = clock_id();
    const int64_t digest_;                                 // of the graph and the times of the run
    Executor executor_;
    std::vector<std::unique_ptr<Peer>> peers_;             // by node
    std::vector<std::unique_ptr<FlowInput>> inputs_;
    std::vector<std::vector<FlowInput*>> by_writer_;       // by node and by writer; null: not subscribed
    std::vector<std::vector<const FlowInput*>> followed_;  // by own writer: the inputs of its flow
    ReceiverThread receiver_;
    UnmatchedTimer unmatched_;
    // Written only by the receiving thread.
    uint64_t total_ = 0, total_bytes_ = 0;
    std::atomic<uint64_t> warm_up_received_{0}, warm_up_bytes_{0};
    std::atomic<int64_t> first_ns_{0}, last_ns_{0};        // when measured samples arrived
    // Guarded by the state's mutex.
    int64_t measured_ns_ = 0;                              // when the measured interval begins; 0: unknown
    bool running_ = false, finished_ = false, done_ = false;
    int64_t deadline_ns_ = 0;                              // when all nodes have to have ended
    int64_t next_start_ns_ = 0;                            // when the first node repeats START
    bool confirms_start_ = false;                          // whether START was repeated since the last confirmation
    double handshake_s_ = 0, discovery_s_ = 0;
    // Used only by the main thread.
    int64_t next_end_ns_ = 0;                              // when END is repeated
    size_t next_end_ = 0;                                  // the first flow of the next END
};

}  // namespace k8sdds
