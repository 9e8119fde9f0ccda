// The publisher: waits for its subscribers, starts them, sends, and collects their reports.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "announcer.h"
#include "histogram.h"
#include "latency_test.h"
#include "options.h"
#include "pacer.h"
#include "participant.h"
#include "state.h"

namespace k8sdds {

class Publisher final : public Participant {
public:
    Publisher(const Options&, const Settings&, Backend&, State&, Histogram&);

    void run() override;
    Results results() const override;
    void alive() override;
    void check(int64_t now) override;

    void on_announcement(const Announcement&) override;
    void on_match() override {
        state_.matched_ns.store(now_ns());
        state_.changed.notify_all();
    }
    void on_sample(const Sample& pong) override;
    void on_received() override {}

private:
    struct Peer {
        Identity identity;
        bool ready = false, started = false, gone = false;
        int64_t heard_ns = 0;
        SubscriberReport report;
    };

    bool discover();
    bool start_subscribers();
    void stream();
    void finish();
    void abort_peers();
    bool write_again(const Sample&, Written);
    bool matched();
    void duplicate(unsigned id);
    bool all(bool Peer::*flag) const;
    unsigned number_of(bool Peer::*flag) const;
    std::string names_without(bool Peer::*flag) const;

    // Repeats the message until the condition holds or the time is over.
    template <typename Send, typename Condition>
    bool repeat(int64_t deadline_ns, Send send, Condition condition);

    const Options& options_;
    Backend& backend_;
    State& state_;
    Histogram& histogram_;
    Announcer announcer_;
    const uint32_t run_;
    std::vector<uint8_t> payload_;
    Sample sample_;
    std::unique_ptr<LatencyTest> latency_test_;
    std::vector<Peer> peers_;                              // by subscriber id; under the state's mutex
    bool running_ = false;                                 // likewise: the peers have to stay
    int unmatched_checks_ = 0;
    double handshake_s_ = 0, discovery_s_ = 0;
    bool started_ = false;
    std::thread receiver_;                                 // of pongs, in receive modes waitset and spin
    std::atomic<bool> receiving_{true};
    std::atomic<uint64_t> pings_{0}, pongs_{0};
};

}  // namespace k8sdds
