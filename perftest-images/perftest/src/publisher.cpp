#include "publisher.h"

#include <algorithm>

#include "settings.h"

namespace k8sdds {

Publisher::Publisher(const Options& options, const Settings& settings, Backend& backend, State& state,
                     Histogram& histogram)
    : Participant(settings), options_(options), backend_(backend), state_(state), announcer_(backend, settings),
      run_(random_number()), id_(static_cast<uint16_t>(settings.id)),
      payload_(settings.data_length - sample_overhead, 0xa5), peers_(settings.subscribers) {
    for (unsigned i = 0; i < peers_.size(); ++i) peers_[i].report.id = i;
    Sample sample;
    sample.run = run_;
    sample.publisher = id_;
    sample.payload = payload_.data();
    sample.payload_length = static_cast<uint32_t>(payload_.size());
    state_.sample_bytes.store(settings.data_length);
    state_.lengths_vary.store(options.recorded != nullptr);
    if (options.test() != Test::throughput) state_.measure_delays();
    workload_ = make_workload({options, settings, backend, state, histogram, sample});
}

void Publisher::run() {
    if (discover() && start_subscribers()) {
        if (options_.verbosity > 0) log_line("started %zu subscriber(s)", peers_.size());
        {
            std::lock_guard<std::mutex> lock(state_.mutex);
            workload_->set_shared_clock(all(&Peer::shares_clock));
        }
        workload_->run();
        warn_of_early_end();
        if (!state_.stopped.load()) collect_reports();
        count_retransmitted();
        workload_->stop();
    }
    if (state_.stopped.load()) abort_peers();
}

void Publisher::warn_of_early_end() const {
    const double measured_s = state_.measured_s();
    const bool by_default = !options_.was_given("-numIter") && measured_s < options_.execution_time;
    if (by_default && state_.samples.load() >= static_cast<uint64_t>(options_.iterations))
        log_line("the default of -numIter ended the measured interval after %.3f s, before -executionTime; give a larger"
                 " -numIter", measured_s);
}

bool Publisher::matched() { return backend_.matches().missing == 0; }

bool Publisher::all(bool Peer::*flag) const { return count(flag) == peers_.size(); }

unsigned Publisher::count(bool Peer::*flag) const {
    return static_cast<unsigned>(std::count_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.*flag; }));
}

std::string Publisher::ids_without(bool Peer::*flag) const {
    std::string ids;
    for (const Peer& peer : peers_)
        if (!(peer.*flag)) ids += (ids.empty() ? "" : ", ") + std::to_string(peer.report.id);
    return ids;
}

bool Publisher::discover() {
    const int64_t begin = now_ns();
    std::unique_lock<std::mutex> lock(state_.mutex);
    const bool discovered = state_.wait(lock, begin + to_ns(options_.discovery_timeout),
                                        [&] { return all(&Peer::ready) && matched(); });
    discovery_s_ = (now_ns() - begin) / 1e9;
    if (discovered) {
        handshake_s_ = (state_.matched_ns.load() - state_.created_ns.load()) / 1e9;
        running_ = true;
        for (Peer& peer : peers_) peer.last_announcement_ns = now_ns();
        return true;
    }
    if (!state_.stopped.load()) {
        const Matches matches = backend_.matches();
        state_.stop(exit_unmatched, "no peer: " + std::to_string(count(&Peer::ready)) + " of " +
                                        std::to_string(peers_.size()) + " subscribers ready (matched readers " +
                                        std::to_string(matches.writer) + ", writers " + std::to_string(matches.reader) +
                                        ") within -discoveryTimeout; " + discovery_advice(options_) + ignored_messages());
    }
    return false;
}

bool Publisher::start_subscribers() {
    const auto start = [&] { send_start(to_all); };
    started_ = repeat(state_, repeat_ns, now_ns() + to_ns(options_.peer_timeout), start, [&] { return all(&Peer::started); });
    if (!started_) {
        std::lock_guard<std::mutex> lock(state_.mutex);
        state_.stop(exit_peer_lost, "peer lost: no answer to START from subscriber " + ids_without(&Peer::started));
    }
    return started_;
}

// Starts subscribers. For one that was started again within the measured interval, there is no warm-up, and the rest of the
// schedule.
void Publisher::send_start(uint16_t to) {
    const int64_t first_ns = state_.first_ns.load(), scheduled_ns = workload_->scheduled_ns();
    const int64_t warm_up_ns = first_ns ? 0 : to_ns(options_.warm_up);
    const int64_t left_ns = first_ns && scheduled_ns ? std::max<int64_t>(first_ns + scheduled_ns - now_ns(), 1) : scheduled_ns;
    const int64_t test = static_cast<int64_t>(options_.test()) + (options_.recorded ? lengths_vary_flag : 0);
    announcer_.send(Kind::start, run_, to,
                    {test, warm_up_ns, to_ns(options_.deadline), options_.data_length,
                     clock_id_, realtime_offset_ns(), options_.keyed ? options_.instances : 0, left_ns});
}

void Publisher::collect_reports() {
    const auto end = [&] {
        announcer_.send(Kind::end, run_, to_all, {static_cast<int64_t>(state_.samples.load()), realtime_offset_ns()});
    };
    const auto reported = [&] {
        return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.report.reported; });
    };
    // check_peers() stops the run when a subscriber is silent. This deadline is for a subscriber that is alive but
    // never reports: it waits at most half the peer timeout from one late sample to the next.
    const int64_t deadline = now_ns() + progress_timeout_ns(2 * options_.peer_timeout + 1, 2 * state_.sample_bytes.load());
    if (!repeat(state_, repeat_ns, deadline, end, reported)) {
        state_.stop(exit_peer_lost, "peer lost: a subscriber did not report");
        return;
    }
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        running_ = false;                                  // the result is complete: peers may leave
    }
    const int64_t confirm_ns = std::min<int64_t>(to_ns(options_.peer_timeout), second_ns);
    const auto done = [&] { announcer_.send(Kind::done, run_, to_all, {options_.next_length}); };
    if (!repeat(state_, repeat_ns, now_ns() + confirm_ns, done, [&] { return all(&Peer::left); }) && !state_.stopped.load()) {
        std::lock_guard<std::mutex> lock(state_.mutex);
        log_line("subscriber %s did not confirm the end of the test; its report has arrived",
                 ids_without(&Peer::left).c_str());
    }
    if (state_.samples.load() == 0)
        state_.stop(exit_no_samples, "no samples were sent in time; raise -executionTime or -pubRate");
    else if (results().received == 0)
        state_.stop(exit_no_samples, "no samples were received; look for lost packets (MTU, buffers, firewall)");
    else if (options_.latency_test && workload_->pongs_received() == 0)
        state_.stop(exit_no_samples, "no pings were answered; look for lost packets (MTU, buffers, firewall)");
}

// Samples are sent again until the subscribers have reported.
void Publisher::count_retransmitted() {
    const std::optional<uint64_t> before = workload_->retransmitted_before(), now = backend_.retransmitted_bytes();
    std::lock_guard<std::mutex> lock(state_.mutex);
    if (before && now) retransmitted_bytes_ = *now - *before;
}

void Publisher::abort_peers() {
    const ExitStatus status = state_.exit_status();
    if (status.code == exit_done || status.code == exit_no_samples) return;
    for (int i = 0; i < 2; ++i) announcer_.send(Kind::abort, run_, to_all, {status.code, 0});
}

void Publisher::assert_liveliness() { announcer_.send(Kind::alive, run_); }

void Publisher::check_peers(int64_t now) {
    const bool all_matched = matched();
    std::lock_guard<std::mutex> lock(state_.mutex);
    if (!running_ || state_.stopped.load()) return;
    for (const Peer& peer : peers_)
        if (now - peer.last_announcement_ns > to_ns(options_.peer_timeout))
            state_.stop(exit_peer_lost, "peer lost: nothing received from subscriber " + std::to_string(peer.report.id));
    if (unmatched_.expired(all_matched || options_.await_peers, now))
        state_.stop(exit_peer_lost, "peer lost: the endpoints of a subscriber disappeared");
}

void Publisher::stop_for_duplicate(unsigned id, const Identity& both) {
    // Address both subscribers first: a subscriber that this publisher has not started ignores the ABORT to all. The
    // numbers of their processes show each of them that the ABORT answers its READY.
    announcer_.send(Kind::abort, run_, static_cast<uint16_t>(id), {exit_usage, both.instance(), both.previous()});
    state_.stop(exit_usage, "-sidMultiSubTest: two subscribers have the id " + std::to_string(id) +
                                "; give each its own id, from 0 to numSubscribers-1");
}

void Publisher::on_peer(const Announcement& a) {
    std::unique_lock<std::mutex> lock(state_.mutex);
    bool restarts = false;
    if (a.id >= peers_.size()) {
        if (a.kind == Kind::ready && a.run == 0)
            state_.stop(exit_usage, "-numSubscribers: a subscriber has the id " + std::to_string(a.id) +
                                        "; raise -numSubscribers or lower its -sidMultiSubTest");
        return;
    }
    Peer& peer = peers_[a.id];
    if (a.kind == Kind::ready && a.run == 0) {
        const Identity::Instance instance = peer.identity.observe(a.instance);
        const bool replaced = instance == Identity::Instance::first_seen && running_;
        const bool restarted = options_.await_peers && a.value[0];
        if (instance == Identity::Instance::duplicate || (replaced && !restarted)) {
            const Identity both = peer.identity;
            lock.unlock();
            stop_for_duplicate(a.id, both);
            return;
        }
        if (replaced) {
            peer.started = peer.left = false;
            peer.report = {};
            peer.report.id = a.id;
        }
        peer.ready = true;
        restarts = running_ && !peer.started && state_.first_ns.load();
    }
    if (a.instance != peer.identity.instance()) return;
    peer.last_announcement_ns = now_ns();
    switch (a.kind) {
    case Kind::ready:
        if (a.run != run_) break;
        peer.started = true;
        peer.shares_clock = clock_id_ != 0 && a.value[0] == clock_id_;
        break;
    case Kind::report:
        if (a.run != run_ || peer.report.reported) break;
        peer.report = {a.id, true, static_cast<uint64_t>(a.value[0]), static_cast<uint64_t>(a.value[1]),
                       static_cast<uint64_t>(a.value[2]), a.value[3], a.value[4], static_cast<uint64_t>(a.value[5])};
        break;
    case Kind::bye:
        if (a.run == run_) peer.left = true;
        break;
    case Kind::abort:
        if (running_ && !peer.report.reported)
            state_.stop(a.value[0] == exit_usage ? exit_usage : exit_peer_lost,
                        a.value[0] == exit_usage
                            ? "-dataLen, -instances or -pidMultiPubTest: subscriber " + std::to_string(a.id) +
                                  " refused this publisher; see its message"
                            : "peer lost: subscriber " + std::to_string(a.id) + " exited with code " +
                                  std::to_string(a.value[0]));
        else if (!running_) {
            peer.ready = false;
            peer.identity.forget();
        }
        break;
    default:
        break;
    }
    lock.unlock();
    if (restarts) send_start(a.id);
    state_.changed.notify_all();
}

void Publisher::on_sample(const Sample& pong) {
    if (pong.publisher != id_) return;                     // of another publisher
    const bool has_length =
        pong.payload_length == payload_.size() || (options_.recorded && pong.payload_length < payload_.size());
    if (pong.run != run_ || !has_length) return ignore_sample();
    if (pong.unshared) return state_.stop(exit_middleware, unshared_sample);
    workload_->on_pong(pong);
}

Results Publisher::results() const {
    Results r;
    std::lock_guard<std::mutex> lock(state_.mutex);
    r.handshake_s = handshake_s_;
    r.discovery_s = discovery_s_;
    r.matched = started_;
    r.sent_known = true;
    r.sent = state_.samples.load();
    r.data_length = static_cast<uint64_t>(options_.data_length);
    r.lengths_vary = state_.lengths_vary.load();
    r.measured_bytes = state_.bytes_of(state_.samples.load());
    r.test = options_.test();
    r.warm_up_s = options_.warm_up;
    for (const Peer& peer : peers_) {
        if (!peer.report.reported) continue;
        r.subscribers.push_back(peer.report);
        r.received += peer.report.received;
        r.duplicates += peer.report.duplicates;
        r.out_of_order += peer.report.out_of_order;
        r.lost += r.sent > peer.report.received ? r.sent - peer.report.received : 0;
    }
    r.first_ns = state_.first_ns.load();
    r.last_ns = state_.last_ns.load();
    r.pings_sent = workload_->pings_sent();
    r.pongs_received = workload_->pongs_received();
    r.pongs_timed_out = workload_->pongs_timed_out();
    r.schedule = workload_->schedule();
    r.retransmitted_bytes = retransmitted_bytes_;
    count_foreign(r);
    r.reached_limit = r.sent >= static_cast<uint64_t>(options_.iterations);
    return r;
}

}  // namespace k8sdds
