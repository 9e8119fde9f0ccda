#include "node.h"

#include <algorithm>

#include "settings.h"
#include "text_lines.h"

namespace k8sdds {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t lead_ns = 100'000'000;                   // START comes so long before the warm-up, so that all begin it in time
constexpr int64_t poll_ns = 1'000'000;                     // after the schedule

// Returns a number that differs if two nodes have different graphs, or another warm-up or measured interval.
int64_t digest_of(const Options& options) {
    return static_cast<int64_t>(hash_of(std::to_string(options.graph->digest) + " " + std::to_string(to_ns(options.warm_up)) + " " +
                                        std::to_string(to_ns(options.execution_time))));
}

}  // namespace

Node::Node(const Options& options, const Settings& settings, Backend& backend, State& state)
    : Participant(settings), options_(options), graph_(*options.graph), backend_(backend), state_(state),
      announcer_(backend, settings), run_(random_number()), id_(static_cast<uint16_t>(settings.id)),
      digest_(digest_of(options)), executor_(options, settings, backend, state, run_), followed_(graph_.nodes[id_].publishes.size()) {
    for (const GraphNode& node : graph_.nodes) {
        peers_.push_back(std::make_unique<Peer>());
        by_writer_.emplace_back(node.publishes.size());
    }
    state_.sample_bytes.store(settings.data_length);
    state_.lengths_vary.store(true);
    state_.measure_delays();
    connect();
}

// Creates the inputs, and connects them with the flows that follow them.
void Node::connect() {
    const GraphNode& own = graph_.nodes[id_];
    for (const unsigned number : own.subscribes) {
        const Flow& flow = graph_.flows[number];
        const std::vector<unsigned>& written = graph_.nodes[flow.publisher].publishes;
        inputs_.push_back(std::make_unique<FlowInput>(flow));
        FlowInput* const input = inputs_.back().get();
        by_writer_[flow.publisher][static_cast<size_t>(std::find(written.begin(), written.end(), number) - written.begin())] = input;
        for (size_t writer = 0; writer < own.publishes.size(); ++writer) {
            const std::vector<unsigned>& after = graph_.flows[own.publishes[writer]].after;
            const auto found = std::find(after.begin(), after.end(), number);
            if (found == after.end()) continue;
            input->feed(executor_, executor_.join_of(writer), static_cast<size_t>(found - after.begin()));
            followed_[writer].push_back(input);
        }
    }
}

template <typename Condition>
bool Node::all_others(Condition condition) const {
    for (size_t id = 0; id < peers_.size(); ++id)
        if (id != id_ && !condition(*peers_[id])) return false;
    return true;
}

// Returns the names of the other nodes for which a condition holds.
template <typename Condition>
std::string Node::names_of(Condition condition) const {
    std::string names;
    for (size_t id = 0; id < peers_.size(); ++id)
        if (id != id_ && condition(*peers_[id])) names += (names.empty() ? "" : ", ") + graph_.nodes[id].name;
    return names;
}

// Returns the period of announcements: longer with many nodes, because each announcement goes to all of them.
int64_t Node::period_ns() const { return repeat_ns * static_cast<int64_t>(1 + peers_.size() / 50); }

void Node::run() {
    if (!inputs_.empty()) receiver_.start(backend_, options_.receive);
    if (discover()) {
        exchange();
        if (!state_.stopped.load()) leave();
    }
    receiver_.stop();
    const ExitStatus status = state_.exit_status();
    for (int i = 0; i < 2 && state_.stopped.load(); ++i) announcer_.send(Kind::abort, run_, to_all, {status.code});
    if (state_.stopped.load()) return;
    const Results r = results();
    if (!inputs_.empty() && r.received == 0)
        state_.stop(exit_no_samples, "no samples were received; look for lost packets (MTU, buffers, firewall)");
    else if (inputs_.empty() && r.sent == 0)
        state_.stop(exit_no_samples, "no samples were sent in time; raise -executionTime or the rates");
}

bool Node::knows_all() const {
    return all_others([](const Peer& peer) { return peer.run.load(relaxed) != 0; });
}

// Determines the progress of this node; the first node decides the time of the measured interval when all are ready.
// Returns whether this time is known.
bool Node::prepare_start() {
    const bool matched = backend_.matches().missing == 0;
    if (matched) handshake_s_ = (state_.matched_ns.load() - state_.created_ns.load()) / 1e9;
    Peer& own = *peers_[id_];
    own.progress = matched && knows_all() ? Progress::ready : Progress::searching;
    const auto is_ready = [](const Peer& peer) { return peer.progress >= Progress::ready; };
    if (is_first() && is_ready(own) && all_others(is_ready) && !measured_ns_)
        measured_ns_ = now_ns() + lead_ns + to_ns(options_.warm_up);
    return measured_ns_ != 0;
}

bool Node::discover() {
    const int64_t begin_ns = now_ns();
    const auto ready = [&] { send_ready(peers_[id_]->progress); };
    const bool started = repeat(state_, period_ns(), begin_ns + to_ns(options_.discovery_timeout), ready,
                                [&] { return prepare_start(); });
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        discovery_s_ = (now_ns() - begin_ns) / 1e9;
    }
    if (!started) {
        if (!state_.stopped.load()) stop_undiscovered();
        return false;
    }
    if (is_first()) send_start();
    else send_ready(Progress::started, 0);
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        uint64_t longest = 0;
        for (const Flow& flow : graph_.flows) longest = std::max<uint64_t>(longest, flow.bytes);
        deadline_ns_ = measured_ns_ + to_ns(options_.execution_time) + schedule_grace_ns +
                       progress_timeout_ns(2 * options_.peer_timeout + 1, longest);
        for (const auto& peer : peers_) peer->last_heard_ns = now_ns();
        for (const auto& input : inputs_) input->observe_age(measured_ns_, to_ns(options_.execution_time));
        running_ = true;
    }
    executor_.schedule(measured_ns_ - to_ns(options_.warm_up), measured_ns_);
    if (options_.verbosity > 0) log_line("started with %zu other node(s)", peers_.size() - 1);
    return true;
}

void Node::stop_undiscovered() {
    std::lock_guard<std::mutex> lock(state_.mutex);
    const std::string unknown = names_of([](const Peer& peer) { return !peer.run.load(relaxed); });
    const std::string searching = names_of([](const Peer& peer) { return peer.run.load(relaxed) && peer.progress == Progress::searching; });
    state_.stop(exit_unmatched, "no peer: " + std::to_string(backend_.matches().missing) + " endpoints of peers are missing; " +
                                    (unknown.empty() ? "" : "not found: " + unknown + "; ") +
                                    (searching.empty() ? "" : "not ready: " + searching + "; ") + "within -discoveryTimeout; " +
                                    discovery_advice(options_) + ignored_messages());
}

void Node::send_ready(Progress progress, uint16_t to) {
    announcer_.send(Kind::ready, run_, to, {clock_id_, realtime_offset_ns(), digest_, static_cast<int64_t>(progress)});
}

void Node::send_start() { announcer_.send(Kind::start, run_, to_all, {measured_ns_ - now_ns()}); }

// Sends and receives until all flows of this node have ended.
void Node::exchange() {
    int64_t next_ns = measured_ns_ + to_ns(options_.execution_time);     // no flow ends earlier
    for (bool finished = false; !finished && !state_.stopped.load();) {
        const int64_t now = now_ns();
        if (now >= next_ns) {
            finished = update_flows(now);
            next_ns = now + poll_ns;
        }
        executor_.step(std::min(next_ns, now + second_ns));
    }
    state_.end_measured(now_ns());
    state_.advance(state_.stage.load(), Stage::over);
}

// Returns whether all flows of this node have ended.
bool Node::update_flows(int64_t now) {
    bool over = executor_.has_ended(), finished = over;
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        for (const auto& input : inputs_) {
            finished = input->update(now, quiet_ns(options_.peer_timeout, input->flow().bytes)) && finished;
            over = over && input->over();
        }
        for (size_t writer = 0; writer < followed_.size(); ++writer) {
            const auto complete = [](const FlowInput* input) { return input->complete(); };
            if (std::all_of(followed_[writer].begin(), followed_[writer].end(), complete)) executor_.end_inputs(writer);
        }
        finished_ = finished;
    }
    if (over) state_.end_measured(now);
    if (const std::optional<size_t> ended = executor_.take_ended()) {
        next_end_ = *ended;
        next_end_ns_ = 0;
    }
    if (now >= next_end_ns_) send_ends();
    return finished;
}

// Announces the numbers of samples of the flows that have ended: of some of them, so that queues do not overflow.
void Node::send_ends() {
    constexpr size_t flows = announcement_values - end_values, messages = 8;
    next_end_ns_ = now_ns() + repeat_ns;
    const size_t writers = followed_.size();
    for (size_t message = 0; message < messages && message * flows < writers; ++message) {
        int64_t sent[flows];
        for (size_t i = 0; i < flows; ++i) {
            const size_t writer = next_end_ + i;
            sent[i] = writer < writers && executor_.has_ended(writer) ? static_cast<int64_t>(executor_.sent(writer)) : -1;
        }
        announcer_.send(Kind::end, run_, to_all, {static_cast<int64_t>(next_end_), realtime_offset_ns(), sent[0], sent[1], sent[2],
                                                  sent[3], sent[4], sent[5]});
        next_end_ = next_end_ + flows < writers ? next_end_ + flows : 0;
    }
}

// Waits until all nodes have ended their flows; check_peers() stops the run if one does not.
void Node::leave() {
    const auto report = [&] {
        send_ends();
        if (!is_first()) announcer_.send(Kind::report, run_);
    };
    const auto reported = [](const Peer& peer) { return peer.reported; };
    if (!repeat(state_, period_ns(), INT64_MAX, report, [&] { return is_first() ? all_others(reported) : done_; })) return;
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        running_ = false;                                  // the result is complete: peers may leave
    }
    if (!is_first()) return;
    const int64_t confirm_ns = std::min<int64_t>(to_ns(options_.peer_timeout), second_ns);
    const auto left = [](const Peer& peer) { return peer.left; };
    const auto done = [&] { announcer_.send(Kind::done, run_); };
    if (repeat(state_, period_ns(), now_ns() + confirm_ns, done, [&] { return all_others(left); }) || state_.stopped.load()) return;
    std::lock_guard<std::mutex> lock(state_.mutex);
    log_line("these nodes did not confirm the end of the test; their reports have arrived: %s",
             names_of([](const Peer& peer) { return !peer.left; }).c_str());
}

// Returns what this node waits for after the schedule.
std::string Node::unfinished() const {
    std::string flows;
    for (const auto& input : inputs_)
        if (!input->announced().ended) flows += (flows.empty() ? "" : ", ") + input->flow().name;
    if (!flows.empty()) return "no END of the flows " + flows;
    // The first node announces no REPORT, but DONE when it has those of all others.
    const std::string nodes = names_of([&](const Peer& peer) { return !peer.reported && &peer != peers_[0].get(); });
    return "no REPORT of the nodes " + (nodes.empty() ? graph_.nodes[0].name : nodes);
}

// Stops the run if a node is lost or makes no progress.
void Node::check_lost(bool matched, int64_t now) {
    for (const auto& input : inputs_) {
        int64_t& heard_ns = peers_[input->flow().publisher]->last_heard_ns;
        heard_ns = std::max(heard_ns, input->last_arrival_ns());
    }
    const std::string silent = names_of([&](const Peer& peer) { return now - peer.last_heard_ns > to_ns(options_.peer_timeout); });
    if (!silent.empty()) state_.stop(exit_peer_lost, "peer lost: nothing received from node " + silent);
    // Others may leave as soon as this node has ended its flows.
    if (unmatched_.expired(matched || options_.await_peers || finished_, now))
        state_.stop(exit_peer_lost, "peer lost: the endpoints of a node disappeared");
    if (now > deadline_ns_) state_.stop(exit_peer_lost, "peer lost: " + unfinished() + " in time");
}

void Node::check_peers(int64_t now) {
    const bool matched = backend_.matches().missing == 0;
    bool starts = false, confirms = false;
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        if (!running_ || state_.stopped.load()) return;
        check_lost(matched, now);
        const bool confirmed = all_others([](const Peer& peer) { return peer.progress == Progress::started; });
        starts = is_first() && !confirmed && now >= next_start_ns_;
        if (starts) next_start_ns_ = now + period_ns();
        confirms = std::exchange(confirms_start_, false);
    }
    if (starts) send_start();
    if (confirms) send_ready(Progress::started, 0);
}

int64_t Node::clock_difference_ns(const Peer& peer, int64_t offset_ns) const {
    const bool shared = clock_id_ != 0 && peer.clock_id == clock_id_;
    return shared ? 0 : realtime_offset_ns() - offset_ns;
}

// Sets the clocks of all inputs: each chain has those of all nodes from its origin on.
void Node::set_clocks() {
    const auto shared = [&](unsigned node) { return node == id_ || (clock_id_ != 0 && peers_[node]->clock_id == clock_id_); };
    for (unsigned node = 0; node < by_writer_.size(); ++node)
        for (size_t writer = 0; writer < by_writer_[node].size(); ++writer) {
            FlowInput* const input = by_writer_[node][writer];
            if (!input) continue;
            const std::vector<unsigned> chain = graph_.chain(graph_.nodes[node].publishes[writer]);
            input->set_clock(peers_[node]->clock_difference_ns, shared(node), std::all_of(chain.begin(), chain.end(), shared));
        }
}

void Node::on_ready(Peer& peer, const Announcement& a) {
    if (a.value[2] != digest_)
        return state_.stop(exit_usage, "-graph: node " + graph_.nodes[a.id].name +
                                           " has another graph; give all nodes the same files, -warmUp and -executionTime");
    const Identity::Instance instance = peer.identity.observe(a.instance);
    if (instance == Identity::Instance::first_seen && running_)
        return state_.stop(exit_peer_lost, "peer lost: node " + graph_.nodes[a.id].name + " was started again");
    if (instance == Identity::Instance::duplicate)
        return state_.stop(exit_usage, "-node: two processes are the node " + graph_.nodes[a.id].name + "; start each node once");
    peer.progress = static_cast<Progress>(a.value[3]);
    if (instance == Identity::Instance::known) return;
    peer.clock_id = a.value[0];
    peer.clock_difference_ns = clock_difference_ns(peer, a.value[1]);
    set_clocks();
    peer.run.store(a.run);
}

void Node::on_start(const Announcement& a) {
    if (a.id != 0 || !knows_all()) return;
    if (measured_ns_) confirms_start_ = true;
    else measured_ns_ = now_ns() + a.value[0];
}

void Node::on_end(const Announcement& a) {
    const int64_t difference_ns = clock_difference_ns(*peers_[a.id], a.value[1]);
    const std::vector<FlowInput*>& inputs = by_writer_[a.id];
    for (size_t i = end_values; i < announcement_values; ++i) {
        const size_t writer = static_cast<size_t>(a.value[0]) + i - end_values;
        if (writer < inputs.size() && inputs[writer] && a.value[i] >= 0)
            inputs[writer]->end(static_cast<uint64_t>(a.value[i]), difference_ns);
    }
}

void Node::on_peer(const Announcement& a) {
    if (a.instance == announcer_.instance()) return;       // some middlewares deliver a process what it announces
    if (a.to != to_all && a.to != id_) return;
    bool leaves = false;
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        if (a.id == id_ || a.id >= peers_.size()) {
            if (a.kind != Kind::ready || running_) return;
            return state_.stop(exit_usage, a.id == id_ ? "-node: another process is the node " + options_.node + "; start each node once"
                                                       : "-graph: another node has a larger graph; give all nodes the same files");
        }
        Peer& peer = *peers_[a.id];
        if (a.kind == Kind::ready) on_ready(peer, a);
        if (a.instance != peer.identity.instance() || a.run != peer.run.load(relaxed)) return;
        peer.last_heard_ns = now_ns();
        if (a.kind == Kind::start) on_start(a);
        if (a.kind == Kind::end) on_end(a);
        if (a.kind == Kind::report) peer.reported = true;
        if (a.kind == Kind::bye) peer.left = true;
        if (a.kind == Kind::done && a.id == 0 && finished_) leaves = done_ = true;
        if (a.kind == Kind::abort && running_ && !done_)
            state_.stop(exit_peer_lost, "peer lost: node " + graph_.nodes[a.id].name + " exited with code " + std::to_string(a.value[0]));
        if (a.kind == Kind::abort && !running_) {
            peer.identity.forget();
            peer.run.store(0);
        }
    }
    if (leaves) announcer_.send(Kind::bye, run_);
    if (a.kind != Kind::alive) state_.changed.notify_all();
}

void Node::on_sample(const Sample& sample) {
    FlowInput* const input = sample.publisher < by_writer_.size() && sample.writer < by_writer_[sample.publisher].size()
                                 ? by_writer_[sample.publisher][sample.writer] : nullptr;
    if (!input || sample.run == 0 || sample.run != peers_[sample.publisher]->run.load(std::memory_order_acquire))
        return ignore_sample();
    if (sample.unshared) return state_.stop(exit_middleware, unshared_sample);
    const int64_t now = now_ns();
    const FlowInput::Taken taken = input->receive(sample, now);
    if (taken == FlowInput::Taken::refused) return ignore_sample();
    const uint64_t length = sample.payload_length + sample_overhead;
    if (taken == FlowInput::Taken::warm_up) {
        warm_up_received_.store(warm_up_received_.load(relaxed) + 1, relaxed);
        warm_up_bytes_.store(warm_up_bytes_.load(relaxed) + length, relaxed);
    }
    if (taken != FlowInput::Taken::measured) return;
    if (!total_) first_ns_.store(now, relaxed);
    last_ns_.store(now, relaxed);
    total_bytes_ += length;
    state_.varying_bytes.store(total_bytes_, relaxed);
    state_.samples.store(++total_, std::memory_order_release);     // a thread that sees the sample sees its bytes
}

Results Node::results() const {
    Results r;
    std::vector<FlowInput::Announced> announced;
    {
        std::lock_guard<std::mutex> lock(state_.mutex);
        r.handshake_s = handshake_s_;
        r.discovery_s = discovery_s_;
        r.matched = running_ || finished_;
        for (const auto& input : inputs_) announced.push_back(input->announced());
    }
    r.test = Test::graph;
    r.sent_known = true;
    r.data_length = state_.sample_bytes.load();
    r.lengths_vary = true;
    r.measured_bytes = state_.varying_bytes.load();
    r.warm_up_s = options_.warm_up;
    r.warm_up_received = warm_up_received_.load();
    r.warm_up_bytes = warm_up_bytes_.load();
    r.first_ns = first_ns_.load();
    r.last_ns = last_ns_.load();
    count_foreign(r);
    for (size_t writer = 0; writer < followed_.size(); ++writer) {
        r.flows.push_back(executor_.result(writer));
        r.sent += r.flows.back().sent;
    }
    // Without the mutex, because percentiles take time and the receiving thread takes it for each announcement.
    for (size_t i = 0; i < inputs_.size(); ++i) {
        r.flows.push_back(inputs_[i]->result(graph_, announced[i]));
        const FlowResult& flow = r.flows.back();
        r.received += flow.received;
        r.lost += flow.lost;
        r.duplicates += flow.duplicates;
        r.out_of_order += flow.out_of_order;
    }
    return r;
}

}  // namespace k8sdds
