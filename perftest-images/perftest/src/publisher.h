// The publisher: waits for its subscribers, starts them, runs the workload, and collects their reports.
#pragma once

#include <memory>
#include <vector>

#include "announcer.h"
#include "clock.h"
#include "histogram.h"
#include "options.h"
#include "participant.h"
#include "state.h"
#include "workload.h"

namespace k8sdds {

class Publisher final : public Participant {
public:
    Publisher(const Options&, const Settings&, Backend&, State&, Histogram&);

    void run() override;
    Results results() const override;
    void assert_liveliness() override;
    void check_peers(int64_t now) override;

    void on_match() override {
        state_.matched_ns.store(now_ns());
        state_.changed.notify_all();
    }
    void on_sample(const Sample& pong) override;
    void on_received() override {}

private:
    void on_peer(const Announcement&) override;

    // A subscriber. Guarded by the state's mutex.
    struct Peer {
        Identity identity;
        bool ready = false, started = false, left = false, shares_clock = false;
        int64_t last_announcement_ns = 0;
        SubscriberReport report;
    };

    bool discover();
    bool start_subscribers();
    void send_start(uint16_t to);
    void warn_of_early_end() const;
    void collect_reports();
    void count_retransmitted();
    void abort_peers();
    bool matched();
    void stop_for_duplicate(unsigned id, const Identity& both);
    bool all(bool Peer::*flag) const;
    unsigned count(bool Peer::*flag) const;
    std::string ids_without(bool Peer::*flag) const;

    const Options& options_;
    Backend& backend_;
    State& state_;
    Announcer announcer_;
    const uint32_t run_;
    const uint16_t id_;
    const int64_t clock_id_ = clock_id();
    std::vector<uint8_t> payload_;                         // what the samples' payload points to
    std::unique_ptr<Workload> workload_;
    std::vector<Peer> peers_;                              // by subscriber id
    bool running_ = false;                                 // guarded by the state's mutex: losing a peer stops the run
    UnmatchedTimer unmatched_;
    double handshake_s_ = 0, discovery_s_ = 0;
    bool started_ = false;
    std::optional<uint64_t> retransmitted_bytes_;
};

}  // namespace k8sdds
