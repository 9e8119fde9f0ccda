// The subscriber: counts what each publisher sends, answers pings, and reports.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "announcer.h"
#include "options.h"
#include "participant.h"
#include "state.h"
#include "tracker.h"

namespace k8sdds {

class Subscriber final : public Participant {
public:
    Subscriber(const Options&, const Settings&, Backend&, State&);

    void run() override;
    Results results() const override;
    void alive() override;
    void check(int64_t now) override;

    void on_announcement(const Announcement&) override;
    void on_match() override {
        state_.matched_ns.store(now_ns());
        state_.changed.notify_all();
    }
    void on_sample(const Sample&) override;
    void on_received() override;

private:
    // One publisher.
    struct Source {
        // Hot: read and written by the receiving thread.
        std::atomic<uint32_t> run{0};
        Tracker tracker;
        bool fresh = false;
        std::atomic<int64_t> first_ns{0}, last_ns{0};

        // Under the state's mutex.
        Identity identity;
        bool ended = false, complete = false, done = false, asks = false;
        uint64_t sent = 0, noticed = 0;
        int64_t heard_ns = 0, progress_ns = 0;
    };

    bool discover();
    void receive_until_done();
    void settle(Source&, int64_t now);
    void report(unsigned id);
    void start(Source&, const Announcement&);
    bool all(bool Source::*flag) const;
    bool all_started() const;

    const Options& options_;
    const bool reliable_, data_length_given_;
    Backend& backend_;
    State& state_;
    Announcer announcer_;
    const int32_t id_;
    std::vector<std::unique_ptr<Source>> sources_;         // by publisher id
    bool running_ = false;                                 // under the state's mutex
    int unmatched_checks_ = 0;
    uint64_t total_ = 0, warm_up_received_ = 0;            // of the receiving thread
    double handshake_s_ = 0, discovery_s_ = 0, warm_up_s_ = 0;
    bool latency_test_ = false;
    std::atomic<bool> receiving_{true};
    std::thread receiver_;
};

}  // namespace k8sdds
