#include "subscriber.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "settings.h"

namespace k8sdds {

constexpr auto relaxed = std::memory_order_relaxed;

Subscriber::Source::Source(const Settings& settings) : streams(settings.topics * settings.writers) {
    if (!settings.keyed) return;
    for (Stream& stream : streams) stream.instances.emplace(settings.instances);
}

uint64_t Subscriber::Source::received() const {
    uint64_t received = 0;
    for (const Stream& stream : streams) received += stream.tracker.received();
    return received;
}

uint64_t Subscriber::Source::sent_by(size_t writer) const {
    const Tracker& tracker = streams[writer].tracker;
    if (!ended) return tracker.received() + tracker.missing();
    return sent / streams.size() + (writer < sent % streams.size());   // the writers take turns
}

Subscriber::Subscriber(const Options& options, const Settings& settings, Backend& backend, State& state,
                       Histogram& delays, Histogram* gaps)
    : Participant(settings), options_(options), reliable_(settings.qos.reader.reliable), data_length_given_(options.was_given("-dataLen")),
      topics_(settings.topics), writers_(settings.writers),
      backend_(backend), state_(state), announcer_(backend, settings),
      id_(static_cast<int32_t>(settings.id)), delays_(delays), gaps_(gaps) {
    for (unsigned i = 0; i < settings.publishers; ++i) sources_.push_back(std::make_unique<Source>(settings));
    state_.sample_bytes.store(settings.data_length);
    if (!options_.slow_file.empty()) slow_.enable();
}

bool Subscriber::all(bool Source::*flag) const {
    return std::all_of(sources_.begin(), sources_.end(), [&](const auto& s) { return (*s).*flag; });
}

bool Subscriber::all_started() const {
    return std::all_of(sources_.begin(), sources_.end(), [](const auto& s) { return s->run.load() != 0; });
}

void Subscriber::run() {
    receiver_.start(backend_, options_.receive);
    if (discover()) receive_until_done();
    receiver_.stop();
    if (state_.stopped.load()) {
        const ExitStatus status = state_.exit_status();
        for (int i = 0; i < 2; ++i) announcer_.send(Kind::abort, 0, to_all, {status.code});
    } else if (state_.samples.load() == 0) {
        state_.stop(exit_no_samples, "no samples were received; look for lost packets (MTU, buffers, firewall)");
    }
}

bool Subscriber::discover() {
    const int64_t begin = now_ns(), deadline = begin + to_ns(options_.discovery_timeout);
    const auto matched = [&] { return backend_.matches().missing == 0; };
    std::unique_lock<std::mutex> lock(state_.mutex);
    const bool all_matched = state_.wait(lock, deadline, matched);
    if (all_matched) handshake_s_ = (state_.matched_ns.load() - state_.created_ns.load()) / 1e9;
    // At least once: the middleware may have delivered a START already, which was for another process with the same id, and
    // a publisher knows by the READY of both that there are two.
    if (all_matched) {
        do {
            lock.unlock();
            announcer_.send(Kind::ready, 0, to_all, {options_.restarted});
            lock.lock();
            state_.wait(lock, std::min(now_ns() + repeat_ns, deadline), [&] { return all_started(); });
        } while (!all_started() && !state_.stopped.load() && now_ns() < deadline);
    }
    discovery_s_ = (now_ns() - begin) / 1e9;
    if (all_started() && !state_.stopped.load()) {
        running_ = true;
        for (auto& source : sources_) source->last_announcement_ns = now_ns();
        return true;
    }
    const Matches matches = backend_.matches();
    const auto started = std::count_if(sources_.begin(), sources_.end(), [](const auto& s) { return s->run.load(); });
    state_.stop(exit_unmatched, "no peer: " + std::to_string(started) + " of " + std::to_string(sources_.size()) +
                                    " publishers started (matched writers " + std::to_string(matches.reader) +
                                    ", readers " + std::to_string(matches.writer) +
                                    ") within -discoveryTimeout; " + discovery_advice(options_) + ignored_messages());
    return false;
}

// Samples show that a publisher is alive, as announcements do.
void Subscriber::update_progress(Source& source, int64_t now) {
    if (source.progressed(source.received(), now)) source.last_announcement_ns = now;
}

void Subscriber::update_completion(Source& source, int64_t now) {
    update_progress(source, now);
    if (!source.ended || source.complete) return;
    source.update(now, reliable_, quiet_ns(options_.peer_timeout, state_.sample_bytes.load()));
    source.report_requested = source.complete;
}

void Subscriber::receive_until_done() {
    std::unique_lock<std::mutex> lock(state_.mutex);
    while (!state_.stopped.load() && !all(&Source::done)) {
        const int64_t now = now_ns();
        bool samples_missing = false;
        for (const auto& source : sources_) {
            update_completion(*source, now);
            samples_missing = samples_missing || (source->ended && !source->complete);
        }
        if (all(&Source::over)) state_.end_measured(now);
        for (unsigned id = 0; id < sources_.size(); ++id) {
            if (!sources_[id]->report_requested) continue;
            sources_[id]->report_requested = false;
            lock.unlock();
            report(id);
            lock.lock();
        }
        if (all(&Source::done)) break;
        // While samples are measured, only announcements and stop() wake up this thread, because it may share a core
        // with the receiving thread.
        if (samples_missing) state_.changed.wait_for(lock, std::chrono::milliseconds(1));
        else state_.changed.wait(lock);
    }
    running_ = false;
    state_.end_measured(now_ns());
}

void Subscriber::report(unsigned id) {
    const Source& source = *sources_[id];
    int64_t received = 0, duplicates = 0, out_of_order = 0, instances = INT64_MAX;
    for (const Stream& stream : source.streams) {
        received += static_cast<int64_t>(stream.tracker.received());
        duplicates += static_cast<int64_t>(stream.tracker.duplicates());
        out_of_order += static_cast<int64_t>(stream.out_of_order());
        instances = std::min(instances, static_cast<int64_t>(stream.instances ? stream.instances->received() : 0));
    }
    announcer_.send(Kind::report, source.run.load(), static_cast<uint16_t>(id),
                    {received, duplicates, out_of_order, source.first_ns.load(), source.last_ns.load(), instances});
}

void Subscriber::assert_liveliness() { announcer_.send(Kind::alive); }

void Subscriber::check_peers(int64_t now) {
    const unsigned matched = backend_.matches().reader;
    std::lock_guard<std::mutex> lock(state_.mutex);
    if (!running_ || state_.stopped.load()) return;
    unsigned expected = 0;
    for (unsigned id = 0; id < sources_.size(); ++id) {
        Source& source = *sources_[id];
        if (source.done) continue;
        ++expected;
        update_progress(source, now);
        if (now - source.last_announcement_ns > to_ns(options_.peer_timeout))
            state_.stop(exit_peer_lost, "peer lost: nothing received from publisher " + std::to_string(id));
    }
    if (unmatched_.expired(matched >= expected * writers_ || options_.await_peers, now))
        state_.stop(exit_peer_lost, "peer lost: the endpoints of a publisher disappeared");
}

// Returns why this subscriber cannot measure a publisher; empty if it can.
std::string Subscriber::refusal(const Source& source, const Announcement& a) const {
    const std::string publisher = "publisher " + std::to_string(a.id);
    const int64_t length = a.value[3];
    if (data_length_given_ && length != options_.data_length)
        return "-dataLen: " + publisher + " sends " + std::to_string(length) +
               " bytes; give the same -dataLen on both sides, or omit it here";
    for (const auto& other : sources_)
        if (other.get() != &source && other->run.load() && other->payload_length + sample_overhead != length)
            return "-dataLen: " + publisher + " sends " + std::to_string(length) + " bytes, another one " +
                   std::to_string(other->payload_length + sample_overhead) + "; give all publishers the same -dataLen";
    if (a.value[6] != (options_.keyed ? options_.instances : 0))
        return "-instances: " + publisher + " writes " + std::to_string(a.value[6]) +
               "; give the same -instances on both sides";
    const int64_t longest = ArrivalLog::max_length_ns(sources_.size());
    if (!options_.arrivals_file.empty() && (a.value[7] < 0 || a.value[7] > longest))
        return "-arrivalsFile: " + publisher + " sends for " + std::to_string(a.value[7] / second_ns) +
               " s; at most " + std::to_string(longest / second_ns) + " s of each publisher are logged; shorten -executionTime";
    return "";
}

void Subscriber::start(Source& source, const Announcement& a) {
    if (const std::string why = refusal(source, a); !why.empty()) return state_.stop(exit_usage, why);
    const auto length = static_cast<uint64_t>(a.value[3]);
    source.payload_length = static_cast<uint32_t>(length - sample_overhead);
    source.lengths_vary = (a.value[0] & lengths_vary_flag) != 0;
    state_.sample_bytes.store(length);
    if (source.lengths_vary) state_.lengths_vary.store(true);
    test_ = static_cast<Test>(a.value[0] & ~lengths_vary_flag);
    if (test_ != Test::throughput) state_.measure_delays();
    warm_up_s_ = a.value[1] / 1e9;
    deadline_ns_.store(a.value[2]);
    source.scheduled_ns = a.value[7];
    source.shares_clock = clock_id_ != 0 && a.value[4] == clock_id_;
    source.clock_difference_ns.store(clock_difference_ns(source, a.value[5]));
    source.measures_delay.store(test_ == Test::paced);
    source.times_samples.store(gaps_ || test_ == Test::paced);
    source.last_announcement_ns = source.last_progress_ns = now_ns();
    source.run.store(a.run);
}

// Returns what to add to a time of this process's monotonic clock to get that of the publisher's, whose realtime clock
// is assumed to show the same time as this machine's.
int64_t Subscriber::clock_difference_ns(const Source& source, int64_t publisher_offset_ns) const {
    return source.shares_clock ? 0 : realtime_offset_ns() - publisher_offset_ns;
}

// The publisher begins its warm-up when it has the last of these answers. The measured interval that follows is as long as the
// schedule, so that what is observed is the same length of time however late samples arrive.
void Subscriber::answer_start(unsigned id) {
    Source& source = *sources_[id];
    const int64_t begin = now_ns() + to_ns(warm_up_s_);
    if (source.scheduled_ns) source.age.observe(begin, begin + source.scheduled_ns, deadline_ns_.load());
    if (source.scheduled_ns && !options_.arrivals_file.empty()) source.arrivals.observe(begin, source.scheduled_ns);
    announcer_.send(Kind::ready, source.run.load(), static_cast<uint16_t>(id), {clock_id_});
}

void Subscriber::on_peer(const Announcement& a) {
    if (a.id >= sources_.size()) return;
    if (a.to != to_all && a.to != static_cast<uint16_t>(id_)) return;
    // The middleware also delivers the START of the process that this one replaces.
    if (options_.restarted && a.kind == Kind::start && a.to == to_all) return;
    Source& source = *sources_[a.id];
    bool starts = false, last_to_start = false, answer_done = false;
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        if (a.kind == Kind::start) {
            const Identity::Instance instance = source.identity.observe(a.instance);
            if (instance == Identity::Instance::duplicate ||
                (instance == Identity::Instance::first_seen && source.run.load())) {
                state_.stop(exit_usage, "-pidMultiPubTest: two publishers have the id " + std::to_string(a.id) +
                                            "; give each its own id, from 0 to numPublishers-1");
                return;
            }
            if (instance == Identity::Instance::first_seen) {
                start(source, a);
                last_to_start = all_started();
            }
            starts = source.run.load() == a.run;
        }
        // A publisher that has not started this process proves with its number that it has seen its READY.
        const bool to_this_process = a.value[1] == announcer_.instance() || a.value[2] == announcer_.instance();
        if (a.kind == Kind::abort && a.to != to_all && a.value[0] == exit_usage && to_this_process)
            state_.stop(exit_usage, "-sidMultiSubTest: another subscriber has the id " + std::to_string(id_) +
                                        "; give each its own id, from 0 to numSubscribers-1");
        if (a.instance != source.identity.instance()) return;
        source.last_announcement_ns = now_ns();
        if (a.kind == Kind::end && a.run == source.run.load() && !source.done) {
            if (!source.ended) {
                source.last_progress_ns = source.last_announcement_ns;
                source.clock_step_ns = clock_difference_ns(source, a.value[1]) - source.clock_difference_ns.load();
            }
            source.ended = true;
            source.sent = static_cast<uint64_t>(a.value[0]);
            source.report_requested = source.complete;
        } else if (a.kind == Kind::done && a.run == source.run.load()) {
            source.done = source.complete;
            answer_done = source.complete;
            source.next_length = is_data_length(a.value[0]) ? a.value[0] : 0;
        } else if (a.kind == Kind::abort && !source.done) {
            state_.stop(exit_peer_lost, "peer lost: publisher " + std::to_string(a.id) + " exited with code " +
                                            std::to_string(a.value[0]));
        }
    }
    // No publisher begins before all have started: their intervals begin together.
    if (last_to_start)
        for (unsigned id = 0; id < sources_.size(); ++id) answer_start(id);
    else if (starts && all_started())
        answer_start(a.id);
    if (answer_done) announcer_.send(Kind::bye, a.run, a.id);
    if (a.kind != Kind::alive) state_.changed.notify_all();
}

// Returns the publisher that sent a sample; null if the sample is not of this run, or not as announced.
Subscriber::Source* Subscriber::source_of(const Sample& sample) {
    if (sample.publisher >= sources_.size()) return nullptr;
    Source& source = *sources_[sample.publisher];
    if (sample.run == 0 || sample.run != source.run.load(std::memory_order_acquire)) return nullptr;
    const bool has_length = sample.payload_length == source.payload_length ||
                            (source.lengths_vary && sample.payload_length < source.payload_length);
    return has_length && sample.writer < source.streams.size() ? &source : nullptr;
}

void Subscriber::on_sample(const Sample& sample) {
    Source* const sender = source_of(sample);
    if (__builtin_expect(!sender, 0)) return ignore_sample();
    if (__builtin_expect(sample.unshared, 0)) return state_.stop(exit_middleware, unshared_sample);
    Source& source = *sender;
    if (sample.ping == id_) backend_.write(sample);        // the pong; if the writer is full, the pong counts as lost
    if (sample.phase != Phase::measured) {
        warm_up_received_.store(warm_up_received_.load(relaxed) + 1, relaxed);
        warm_up_bytes_.store(warm_up_bytes_.load(relaxed) + sample.payload_length + sample_overhead, relaxed);
        if (source.measures_delay.load(relaxed)) delay_of(source, sample, now_ns());
        return;
    }
    const bool first = source.first_ns.load(relaxed) == 0;
    const int64_t now = __builtin_expect(first, 0) ? now_ns() : 0;
    if (!source.streams[sample.writer].record(sample)) return;
    source.received_in_group = true;
    if (source.times_samples.load(relaxed)) time_sample(source, sample);
    const uint64_t bytes_before = total_bytes_;
    total_bytes_ += sample.payload_length + sample_overhead;
    state_.varying_bytes.store(total_bytes_, relaxed);
    state_.samples.store(++total_, std::memory_order_release);   // a thread that sees the sample also sees its bytes
    if (__builtin_expect(first, 0)) {                      // count before the phase is signaled
        source.first_ns.store(now);
        source.last_ns.store(now);
        source.total_at_first.store(total_);
        source.total_at_last.store(total_);
        source.bytes_before_first.store(bytes_before);
        source.bytes_at_last.store(total_bytes_);
        state_.begin_measured(now);
        state_.advance(Stage::waiting, Stage::measured);
    }
}

void Subscriber::time_sample(Source& source, const Sample& sample) {
    const int64_t now = now_ns();
    if (gaps_ && source.previous_arrival_ns) gaps_->record(now - source.previous_arrival_ns);
    source.previous_arrival_ns = now;
    if (!source.measures_delay.load(relaxed)) return;
    const int64_t delay_ns = delay_of(source, sample, now);
    record_delay(source, delay_ns);
    if (!options_.arrivals_file.empty())
        source.arrivals.arrived(now, elapsed_ns(delay_ns, now), delay_ns, deadline_ns_.load(relaxed));
    if (slow_.enabled()) slow_.arrived(sample.publisher, now, delay_ns);
}

// Returns the time from when a sample was due, and observes the age of the newest one.
int64_t Subscriber::delay_of(Source& source, const Sample& sample, int64_t now) {
    const int64_t delay_ns = elapsed_ns(sample.sent_ns, now + source.clock_difference_ns.load(relaxed));
    source.age.arrived(now, elapsed_ns(delay_ns, now));
    return delay_ns;
}

// From when a sample was due to when the middleware delivered it. If the clocks differ by more than that, it is negative,
// and the histogram counts it as 0.
void Subscriber::record_delay(Source& source, int64_t delay_ns) {
    delays_.record(delay_ns);
    if (delay_ns > deadline_ns_.load(relaxed)) deadlines_missed_.store(deadlines_missed_.load(relaxed) + 1, relaxed);
    if (source.previous_delay_ns != no_delay) {
        const double change = std::abs(static_cast<double>(delay_ns) - static_cast<double>(source.previous_delay_ns));
        delay_change_sum_ns_.store(delay_change_sum_ns_.load(relaxed) + change, relaxed);
        delay_changes_.store(delay_changes_.load(relaxed) + 1, relaxed);
    }
    source.previous_delay_ns = delay_ns;
}

// Reads the clock once for all samples that were received together.
void Subscriber::on_received() {
    int64_t now = 0;
    for (auto& source : sources_) {
        if (!source->received_in_group) continue;
        if (!now) now = now_ns();
        source->received_in_group = false;
        source->last_ns.store(now, relaxed);
        source->total_at_last.store(total_, relaxed);
        source->bytes_at_last.store(total_bytes_, relaxed);
        state_.last_ns.store(now, relaxed);
    }
}

CommonInterval Subscriber::common_interval() const {
    CommonInterval common;
    uint64_t total_at_first = 0, total_at_last = 0, bytes_before_first = 0, bytes_at_last = 0;
    for (const auto& source : sources_) {
        const int64_t first = source->first_ns.load(), last = source->last_ns.load();
        if (!first) return {};
        if (first > common.first_ns) {
            common.first_ns = first;
            total_at_first = source->total_at_first.load();
            bytes_before_first = source->bytes_before_first.load();
        }
        if (!common.last_ns || last < common.last_ns) {
            common.last_ns = last;
            total_at_last = source->total_at_last.load();
            bytes_at_last = source->bytes_at_last.load();
        }
    }
    if (common.last_ns <= common.first_ns) return {};
    common.samples = total_at_last - total_at_first + 1;
    common.bytes = bytes_at_last - bytes_before_first;
    return common;
}

Arrivals Subscriber::arrivals() const {
    Arrivals arrivals;
    arrivals.shared_clock = all(&Source::shares_clock);
    for (const auto& source : sources_)
        arrivals.clock_step_ns = std::max(arrivals.clock_step_ns, std::abs(source->clock_step_ns));
    arrivals.deadline_ns = deadline_ns_.load();
    arrivals.missed = deadlines_missed_.load();
    const uint64_t changes = delay_changes_.load();
    arrivals.freshness = freshness();
    if (changes) arrivals.jitter_ns = delay_change_sum_ns_.load() / static_cast<double>(changes);
    return arrivals;
}

void Subscriber::write_arrivals(std::FILE* file) const {
    for (unsigned id = 0; id < sources_.size(); ++id) sources_[id]->arrivals.write(id, file);
}

// Each publisher's samples count by themselves: a fresh sample of one does not replace those of another.
std::optional<Freshness> Subscriber::freshness() const {
    std::optional<Freshness> worst;
    for (const auto& source : sources_) {
        const std::optional<Freshness> seen = source->age.freshness();
        if (!seen) return std::nullopt;
        if (!worst) {
            worst = seen;
            continue;
        }
        worst->blind = std::max(worst->blind, seen->blind);
        worst->gaps += seen->gaps;
        if (!worst->ages || !seen->ages) worst->ages.reset();
        else
            worst->ages = {std::max(worst->ages->mean, seen->ages->mean), std::max(worst->ages->p99, seen->ages->p99),
                           std::max(worst->ages->max, seen->ages->max)};
    }
    return worst;
}

InstanceCounts Subscriber::instance_counts() const {
    InstanceCounts counts{UINT64_MAX, UINT64_MAX, 0};
    for (const auto& source : sources_)
        for (const Stream& stream : source->streams) {
            counts.received = std::min(counts.received, stream.instances->received());
            counts.fewest_samples = std::min(counts.fewest_samples, stream.instances->fewest_samples());
            counts.most_samples = std::max(counts.most_samples, stream.instances->most_samples());
        }
    return counts;
}

// Returns the counts of each writer, if a publisher has several.
std::vector<WriterCounts> Subscriber::writer_counts() const {
    std::vector<WriterCounts> counts;
    for (unsigned publisher = 0; publisher < sources_.size(); ++publisher) {
        const Source& source = *sources_[publisher];
        for (unsigned writer = 0; source.streams.size() > 1 && writer < source.streams.size(); ++writer) {
            const Stream& stream = source.streams[writer];
            const uint64_t received = stream.tracker.received(), sent = source.sent_by(writer);
            counts.push_back({publisher, writer, writer % topics_, received, sent - std::min(sent, received),
                              stream.tracker.duplicates(), stream.out_of_order()});
        }
    }
    return counts;
}

Results Subscriber::results() const {
    Results r;
    std::lock_guard<std::mutex> lock(state_.mutex);
    r.handshake_s = handshake_s_;
    r.discovery_s = discovery_s_;
    r.matched = all_started();
    r.sent_known = all(&Source::ended);
    r.data_length = state_.sample_bytes.load();
    r.lengths_vary = state_.lengths_vary.load();
    r.measured_bytes = state_.bytes_of(state_.samples.load());
    r.warm_up_bytes = warm_up_bytes_.load();
    r.test = test_;
    if (test_ == Test::paced) r.arrivals = arrivals();
    if (options_.keyed) r.instances = instance_counts();
    r.writers = writer_counts();
    r.warm_up_s = warm_up_s_;
    count_foreign(r);
    r.warm_up_received = warm_up_received_.load();
    r.common = common_interval();
    for (const auto& source : sources_) {
        for (size_t writer = 0; writer < source->streams.size(); ++writer) {
            const Stream& stream = source->streams[writer];
            const uint64_t received = stream.tracker.received(), sent = source->sent_by(writer);
            r.received += received;
            r.duplicates += stream.tracker.duplicates();
            r.out_of_order += stream.out_of_order();
            r.lost += sent - std::min(sent, received);
        }
        r.sent += source->sent;
        r.next_length = std::max(r.next_length, source->next_length);
        const int64_t first = source->first_ns.load();
        if (first && (!r.first_ns || first < r.first_ns)) r.first_ns = first;
        r.last_ns = std::max(r.last_ns, source->last_ns.load());
    }
    return r;
}

}  // namespace k8sdds
