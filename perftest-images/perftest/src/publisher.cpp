#include "publisher.h"

#include <algorithm>

namespace k8sdds {

constexpr auto relaxed = std::memory_order_relaxed;

Publisher::Publisher(const Options& options, const Settings& settings, Backend& backend, State& state,
                     Histogram& histogram)
    : options_(options), backend_(backend), state_(state), histogram_(histogram),
      announcer_(backend, Role::publisher, settings.id), run_(random_number()),
      payload_(settings.data_length - sample_overhead, 0xa5), peers_(settings.subscribers) {
    for (unsigned i = 0; i < peers_.size(); ++i) peers_[i].report.id = i;
    sample_.run = run_;
    sample_.publisher = static_cast<uint16_t>(settings.id);
    sample_.payload = payload_.data();
    sample_.payload_length = static_cast<uint32_t>(payload_.size());
    state_.sample_bytes.store(settings.data_length);
    if (options.latency_test)
        latency_test_ = std::make_unique<LatencyTest>(options, settings, backend, state, histogram, sample_);
}

void Publisher::run() {
    if (discover() && start_subscribers()) {
        if (options_.verbosity > 0) say("started %zu subscriber(s)", peers_.size());
        if (latency_test_) latency_test_->run();
        else stream();
        if (!state_.stopped.load()) finish();
        receiving_.store(false);
        if (receiver_.joinable()) receiver_.join();
    }
    if (state_.stopped.load()) abort_peers();
}

bool Publisher::matched() {
    const Matches found = backend_.matches();
    return found.writer >= peers_.size() && found.reader >= peers_.size();
}

bool Publisher::all(bool Peer::*flag) const { return number_of(flag) == peers_.size(); }

unsigned Publisher::number_of(bool Peer::*flag) const {
    return static_cast<unsigned>(std::count_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.*flag; }));
}

std::string Publisher::names_without(bool Peer::*flag) const {
    std::string names;
    for (const Peer& peer : peers_)
        if (!(peer.*flag)) names += (names.empty() ? "" : ", ") + std::to_string(peer.report.id);
    return names;
}

template <typename Send, typename Condition>
bool Publisher::repeat(int64_t deadline_ns, Send send, Condition condition) {
    std::unique_lock<std::mutex> lock(state_.mutex);
    while (!condition()) {
        if (state_.stopped.load() || now_ns() >= deadline_ns) return false;
        lock.unlock();
        send();
        lock.lock();
        state_.wait(lock, std::min(now_ns() + repeat_ns, deadline_ns), condition);
    }
    return !state_.stopped.load();
}

bool Publisher::discover() {
    const int64_t begun = now_ns();
    std::unique_lock<std::mutex> lock(state_.mutex);
    const bool found = state_.wait(lock, begun + to_ns(options_.discovery_timeout),
                                   [&] { return all(&Peer::ready) && matched(); });
    discovery_s_ = (now_ns() - begun) / 1e9;
    if (found) {
        handshake_s_ = (state_.matched_ns.load() - state_.created_ns.load()) / 1e9;
        running_ = true;
        for (Peer& peer : peers_) peer.heard_ns = now_ns();
        return true;
    }
    if (!state_.stopped.load()) {
        const Matches matches = backend_.matches();
        state_.stop(exit_unmatched, "no peer: " + std::to_string(number_of(&Peer::ready)) + " of " +
                                        std::to_string(peers_.size()) + " subscribers ready (matched readers " +
                                        std::to_string(matches.writer) + ", writers " + std::to_string(matches.reader) +
                                        ") within -discoveryTimeout; check -peer, -domain, -nic, -numSubscribers and QoS");
    }
    return false;
}

bool Publisher::start_subscribers() {
    const auto start = [&] {
        announcer_.send(Kind::start, run_, to_all,
                        {options_.latency_test, to_ns(options_.warm_up), to_ns(options_.execution_time),
                         options_.data_length, !options_.best_effort});
    };
    started_ = repeat(now_ns() + to_ns(options_.peer_timeout), start, [&] { return all(&Peer::started); });
    if (!started_)
        state_.stop(exit_peer_lost, "peer lost: no answer to START from subscriber " + names_without(&Peer::started));
    return started_;
}

bool Publisher::write_again(const Sample& sample, Written written) {
    const int64_t since = now_ns();
    while (written == Written::blocked) {
        if (state_.stage.load(relaxed) == Stage::over) return false;
        if (now_ns() - since > patience_ns(options_.peer_timeout, state_.sample_bytes.load())) {
            state_.stop(exit_peer_lost, "peer lost: no subscriber took a sample for the -peerTimeout");
            return false;
        }
        written = backend_.write(sample);
    }
    if (written == Written::ok) return true;
    state_.stop(exit_middleware, "middleware error: write: " + backend_.last_error());
    return false;
}

// The hot loop of the throughput test.
void Publisher::stream() {
    Pacer pacer(options_, state_);
    if (options_.receive != "listener")
        receiver_ = std::thread([this] {
            while (receiving_.load(relaxed))
                if (options_.receive == "spin" || backend_.wait(50'000'000)) backend_.take();
        });

    Sample sample = sample_;
    const uint64_t every = static_cast<uint64_t>(options_.latency_count);
    const uint64_t limit = static_cast<uint64_t>(options_.iterations);
    uint64_t countdown = 1, number = 0;
    int32_t asked = 0;
    Stage stage = Stage::warm_up;
    state_.stage_until_ns.store(now_ns() + to_ns(options_.warm_up));
    Stage expected = Stage::waiting;
    if (state_.stage.compare_exchange_strong(expected, stage) && options_.warm_up <= 0) state_.stage.store(Stage::measured);
    for (;;) {
        const Stage wanted = state_.stage.load(relaxed);
        if (__builtin_expect(wanted != stage, 0)) {
            if (wanted == Stage::over) break;
            stage = wanted;
            number = 0;
            countdown = 1;
            sample.phase = Phase::measured;
            const int64_t now = now_ns();
            pacer.restart(now);
            state_.begin_measured(now);
            state_.stage_until_ns.store(options_.execution_time > 0 ? now + to_ns(options_.execution_time) : INT64_MAX);
        }
        if (pacer.paces()) {
            pacer.wait(stage);
            if (state_.stage.load(relaxed) != stage) continue;
        }
        sample.sequence = static_cast<uint32_t>(number);
        if (--countdown == 0) {
            countdown = every;
            sample.ping = asked;
            asked = (asked + 1) % static_cast<int32_t>(peers_.size());
            if (stage == Stage::measured) pings_.store(pings_.load(relaxed) + 1, relaxed);
            sample.sent_ns = now_ns();
        } else {
            sample.ping = -1;
        }
        const Written written = backend_.write(sample);
        if (__builtin_expect(written != Written::ok, 0) && !write_again(sample, written)) {
            if (sample.ping >= 0 && stage == Stage::measured) pings_.store(pings_.load(relaxed) - 1, relaxed);
            break;
        }
        ++number;
        if (stage == Stage::measured) {
            state_.samples.store(number, relaxed);
            if (number >= limit) break;
        }
    }
    backend_.flush();
    const int64_t now = now_ns();
    state_.last_ns.store(now);
    state_.end_measured(now);
    state_.stage.store(Stage::over);
}

void Publisher::finish() {
    const auto end = [&] {
        announcer_.send(Kind::end, run_, to_all, {static_cast<int64_t>(state_.samples.load())});
    };
    const auto reported = [&] {
        return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.report.reported; });
    };
    // A subscriber that is alive reports; check() ends the run when one is silent. The bound is for one
    // that only pretends: a subscriber waits at most half the peer timeout from one late sample to the next.
    const int64_t deadline = now_ns() + patience_ns(2 * options_.peer_timeout + 1, 2 * state_.sample_bytes.load());
    if (!repeat(deadline, end, reported)) {
        state_.stop(exit_peer_lost, "peer lost: a subscriber did not report");
        return;
    }
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        running_ = false;                                  // from here on the result stands, whoever leaves
    }
    const int64_t patience = std::min<int64_t>(to_ns(options_.peer_timeout), 1'000'000'000);
    const auto done = [&] { announcer_.send(Kind::done, run_); };
    if (!repeat(now_ns() + patience, done, [&] { return all(&Peer::gone); }) && !state_.stopped.load())
        say("not every subscriber took leave; its report had arrived");
    if (state_.samples.load() == 0)
        state_.stop(exit_no_samples, "no samples were sent in the time; raise -executionTime or -pubRate");
    else if (results().received == 0)
        state_.stop(exit_no_samples, "no samples were received; look for lost packets (MTU, buffers, firewall)");
    else if (latency_test_ && latency_test_->received() == 0)
        state_.stop(exit_no_samples, "no samples were answered; look for lost packets (MTU, buffers, firewall)");
}

void Publisher::abort_peers() {
    const Ending ending = state_.ending();
    if (ending.code == exit_done || ending.code == exit_no_samples) return;
    for (int i = 0; i < 2; ++i) announcer_.send(Kind::abort, run_, to_all, {ending.code, 0});
}

void Publisher::alive() { announcer_.send(Kind::alive, run_); }

void Publisher::check(int64_t now) {
    const bool here = matched();
    std::lock_guard<std::mutex> lock(state_.mutex);
    if (!running_ || state_.stopped.load()) return;
    for (const Peer& peer : peers_)
        if (now - peer.heard_ns > to_ns(options_.peer_timeout))
            state_.stop(exit_peer_lost, "peer lost: nothing heard from subscriber " + std::to_string(peer.report.id));
    unmatched_checks_ = here ? 0 : unmatched_checks_ + 1;
    if (unmatched_checks_ >= 3) state_.stop(exit_peer_lost, "peer lost: a subscriber's endpoints have gone");
}

void Publisher::duplicate(unsigned id) {
    // Tell the two first: an abort to all without an instance means another's end.
    announcer_.send(Kind::abort, run_, static_cast<uint16_t>(id), {exit_usage, 0});
    state_.stop(exit_usage, "-sidMultiSubTest: two subscribers have the id " + std::to_string(id) +
                                "; give each its own, from 0 to numSubscribers-1");
}

void Publisher::on_announcement(const Announcement& a) {
    if (a.role != Role::subscriber) return;
    std::unique_lock<std::mutex> lock(state_.mutex);
    if (a.id >= peers_.size()) {
        if (a.kind == Kind::ready && a.run == 0)
            state_.stop(exit_usage, "-numSubscribers: a subscriber has the id " + std::to_string(a.id) +
                                        "; raise -numSubscribers or lower its -sidMultiSubTest");
        return;
    }
    Peer& peer = peers_[a.id];
    if (a.kind == Kind::ready && a.run == 0) {
        const Identity::Heard heard = peer.identity.hear(a.instance);
        if (heard == Identity::Heard::duplicate || (heard == Identity::Heard::fresh && running_)) {
            lock.unlock();
            duplicate(a.id);
            return;
        }
        peer.ready = true;
    }
    if (a.instance != peer.identity.instance()) return;
    peer.heard_ns = now_ns();
    switch (a.kind) {
    case Kind::ready:
        if (a.run == run_) peer.started = true;
        break;
    case Kind::report:
        if (a.run != run_ || peer.report.reported) break;
        peer.report = {a.id, true, static_cast<uint64_t>(a.value[0]), static_cast<uint64_t>(a.value[1]),
                       static_cast<uint64_t>(a.value[2]), a.value[3], a.value[4]};
        break;
    case Kind::bye:
        if (a.run == run_) peer.gone = true;
        break;
    case Kind::abort:
        if (running_ && !peer.report.reported)
            state_.stop(a.value[0] == exit_usage ? exit_usage : exit_peer_lost,
                        a.value[0] == exit_usage
                            ? "-dataLen or -pidMultiPubTest: subscriber " + std::to_string(a.id) +
                                  " refused this publisher; its message says why"
                            : "peer lost: subscriber " + std::to_string(a.id) + " ended with exit code " +
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
    state_.changed.notify_all();
}

void Publisher::on_sample(const Sample& pong) {
    if (pong.run != run_ || pong.publisher != sample_.publisher) return;
    if (latency_test_) return latency_test_->on_pong(pong);
    if (pong.phase != Phase::measured) return;
    histogram_.record((now_ns() - pong.sent_ns) / 2);
    pongs_.store(pongs_.load(relaxed) + 1, relaxed);
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
    r.latency_test = options_.latency_test;
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
    r.pings_sent = latency_test_ ? latency_test_->sent() : pings_.load();
    r.pongs_received = latency_test_ ? latency_test_->received() : pongs_.load();
    r.pongs_timed_out = latency_test_ ? latency_test_->timed_out() : r.pings_sent - std::min(r.pings_sent, r.pongs_received);
    return r;
}

}  // namespace k8sdds
