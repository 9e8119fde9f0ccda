// The subscriber: counts what each publisher sends, answers pings, and reports. It serves every workload.
#pragma once

#include <memory>
#include <vector>

#include "age.h"
#include "announcer.h"
#include "arrival_log.h"
#include "clock.h"
#include "completion.h"
#include "histogram.h"
#include "options.h"
#include "participant.h"
#include "receiver.h"
#include "slow_samples.h"
#include "state.h"
#include "stream.h"

namespace k8sdds {

class Subscriber final : public Participant {
public:
    // `gaps` gets the times between the samples of each publisher, unless it is null.
    Subscriber(const Options&, const Settings&, Backend&, State&, Histogram& delays, Histogram* gaps);

    void run() override;
    Results results() const override;
    void write_arrivals(std::FILE* file) const override;
    void write_slow(std::FILE* file) const override { slow_.write(delays_, file); }
    void assert_liveliness() override;
    void check_peers(int64_t now) override;

    void on_match() override {
        state_.matched_ns.store(now_ns());
        state_.changed.notify_all();
    }
    void on_sample(const Sample&) override;
    void on_received() override;

private:
    void on_peer(const Announcement&) override;

    static constexpr int64_t no_delay = INT64_MIN;

    // The state of one publisher.
    struct Source : Completion {
        explicit Source(const Settings&);

        // Written only by the receiving thread, except `run`, which START sets after all that a sample needs.
        std::atomic<uint32_t> run{0};
        uint32_t payload_length = 0;                       // of a sample; set once, before `run`
        bool lengths_vary = false;                         // samples may be shorter; set with it
        std::vector<Stream> streams;                       // by writer
        bool received_in_group = false;
        std::atomic<int64_t> first_ns{0}, last_ns{0};
        std::atomic<uint64_t> total_at_first{0}, total_at_last{0};    // measured samples of all publishers until then
        std::atomic<uint64_t> bytes_before_first{0}, bytes_at_last{0};   // of these samples, without the first one
        std::atomic<bool> times_samples{false};            // reads the clock for each sample
        std::atomic<bool> measures_delay{false};           // paced test
        std::atomic<int64_t> clock_difference_ns{0};       // what makes a time of this process one of the publisher
        int64_t previous_delay_ns = no_delay;              // of the last sample
        int64_t previous_arrival_ns = 0;
        Age age;
        ArrivalLog arrivals;

        // Guarded by the state's mutex, as the completion.
        Identity identity;
        bool done = false, report_requested = false;
        int64_t next_length = 0;                           // of a scan
        int64_t scheduled_ns = 0;                          // length of the schedule; 0: there is none
        int64_t last_announcement_ns = 0;
        bool shares_clock = false;
        int64_t clock_step_ns = 0;                         // change of clock_difference_ns from START to END

        uint64_t received() const;
        // How many samples of a writer have been sent, or at least that many before the publisher has ended.
        uint64_t sent_by(size_t writer) const;
    };

    bool discover();
    void receive_until_done();
    void update_progress(Source&, int64_t now);
    void update_completion(Source&, int64_t now);
    void report(unsigned id);
    std::string refusal(const Source&, const Announcement&) const;
    void start(Source&, const Announcement&);
    Source* source_of(const Sample&);
    void answer_start(unsigned id);
    void time_sample(Source&, const Sample&);
    int64_t delay_of(Source&, const Sample&, int64_t now);
    void record_delay(Source&, int64_t delay_ns);
    int64_t clock_difference_ns(const Source&, int64_t publisher_offset_ns) const;
    bool all(bool Source::*flag) const;
    bool all_started() const;
    Arrivals arrivals() const;
    std::optional<Freshness> freshness() const;
    CommonInterval common_interval() const;
    InstanceCounts instance_counts() const;
    std::vector<WriterCounts> writer_counts() const;

    const Options& options_;
    const bool reliable_, data_length_given_;
    const unsigned topics_, writers_;                      // throughput topics; writers of a publisher on each of them
    Backend& backend_;
    State& state_;
    Announcer announcer_;
    const int32_t id_;
    const int64_t clock_id_ = clock_id();
    // Written only by the receiving thread.
    Histogram& delays_;                                    // of a paced test
    Histogram* const gaps_;
    SlowSamples slow_;
    std::vector<std::unique_ptr<Source>> sources_;         // by publisher id
    bool running_ = false;                                 // guarded by the state's mutex
    UnmatchedTimer unmatched_;
    // Written only by the receiving thread.
    uint64_t total_ = 0, total_bytes_ = 0;
    std::atomic<uint64_t> warm_up_received_{0}, warm_up_bytes_{0}, deadlines_missed_{0}, delay_changes_{0};
    std::atomic<double> delay_change_sum_ns_{0};

    double handshake_s_ = 0, discovery_s_ = 0, warm_up_s_ = 0;
    Test test_ = Test::throughput;
    std::atomic<int64_t> deadline_ns_{0};
    ReceiverThread receiver_;
};

}  // namespace k8sdds
