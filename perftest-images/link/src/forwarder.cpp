#include "forwarder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "clock.h"
#include "failure.h"
#include "frame.h"
#include "json.h"

namespace k8sdds {

namespace {

// The program sleeps until shortly before a departure, because waking up takes some time, and then looks at the clock.
constexpr std::int64_t kSpin = 50'000;
// Linux takes the core from a real-time thread that leaves less than 5 % of it to others, for 50 ms each second.
constexpr std::int64_t kWork = 800'000, kRest = 50'000;
constexpr std::int64_t kLookAround = 1'000'000;     // between two looks at standard input without sleeping
constexpr std::int64_t kLookForDeleted = 100'000'000;
constexpr int kRound = 64;                          // packets of a direction between two looks at departures
constexpr int kLastRounds = 64;                     // more than the packets that a ring has room for
constexpr std::size_t kLargePackets = 256, kLargestFrame = (1 << 16) + 256, kLongestLine = 4096;
constexpr std::uint32_t kStandardInput = UINT32_MAX;

// Answers a command with the time at which it took effect.
void answer(std::int64_t time) {
    std::printf("%lld\n", static_cast<long long>(time / 1000));
    std::fflush(stdout);
}

}  // namespace

Forwarder::Forwarder(const Config& config)
    : config_(config), departures_(config.packets + kLargePackets), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) throw Failure(kSystem, "cannot create an epoll instance: " + errno_text());
    const auto add = [&](int fd, std::uint32_t number) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u32 = number;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) throw Failure(kSystem, "cannot poll: " + errno_text());
    };
    std::uint32_t mtu = 0;
    for (const LinkConfig& link : config.links) {
        links_.push_back(std::make_unique<Link>(link));
        for (const bool up : {true, false}) {
            const auto index = static_cast<std::uint16_t>(directions_.size());
            directions_.push_back(std::make_unique<Direction>(link, up, config.seed, *links_.back(), index));
            mtu = std::max(mtu, directions_.back()->in.mtu());
            add(directions_.back()->in.fd(), index);
        }
    }
    const std::size_t room = (kVnetBytes + kEthernetBytes + kVlanBytes + mtu + 63) / 64 * 64;
    pool_ = std::make_unique<Pool>(config.packets, room, kLargePackets, kVnetBytes + kLargestFrame);
    add(STDIN_FILENO, kStandardInput);
}

Forwarder::~Forwarder() { close(epoll_); }

void Forwarder::run() {
    std::int64_t looked = clock_ns(), slept = looked;
    while (!ended_) {
        const std::int64_t now = clock_ns();
        const bool busy = receive(now);
        depart();
        const std::int64_t next = next_event();
        if (!busy && next > now + kSpin) {
            wait(next - kSpin);
            looked = slept = clock_ns();
        } else if (now - slept > kWork) {
            const timespec rest{0, kRest};
            clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, nullptr);
            slept = clock_ns();
        } else if (now - looked > kLookAround) {
            wait(0);
            looked = now;
        }
    }
}

bool Forwarder::receive(std::int64_t now) {
    bool busy = false;
    std::int64_t offset = 0;                // from the clock of the timestamps to ours
    for (const auto& direction : directions_) {
        Port::Frame frame;
        int count = 0;
        while (count < kRound && direction->in.receive(frame)) {
            if (offset == 0) offset = clock_ns() - clock_ns(CLOCK_REALTIME);
            // The clock of the timestamps can be set at any time.
            std::int64_t arrived = frame.realtime_ns + offset;
            if (arrived > now) arrived = std::min(arrived, clock_ns());
            direction->last_arrival = std::max(direction->last_arrival, arrived);
            take(*direction, frame, direction->last_arrival);
            direction->in.release();
            ++count;
        }
        busy |= count > 0;
        // Everything that arrived until now has been taken, unless there was too much of it.
        direction->line.advance(*pool_, departures_, count < kRound ? now : direction->last_arrival);
    }
    return busy;
}

void Forwarder::take(Direction& direction, const Port::Frame& frame, std::int64_t arrived) {
    Line::Arrival arrival;
    arrival.time = arrived;
    arrival.bytes = frame.bytes;
    arrival.udp = carries_udp(frame.data, frame.stored);
    arrival.oversized = frame.bytes > direction.in.mtu() + kEthernetBytes + (frame.tagged ? kVlanBytes : 0);
    if (direction.line.decide(arrival) != Line::Fate::kPasses) return;
    const std::uint32_t packet = frame.whole ? pool_->take(frame.bytes) : kNone;
    if (packet == kNone) return direction.line.overflow();
    store(frame, pool_->contents(packet));
    direction.line.add(*pool_, departures_, packet);
}

void Forwarder::depart() {
    std::int64_t now = clock_ns();
    for (int count = 0; departures_.next() <= now && count < 4 * kRound; ++count) {
        const std::uint32_t index = departures_.take();
        Direction& direction = *directions_[(*pool_)[index].line];
        if (!direction.line.leaves((*pool_)[index])) {
            pool_->give(index);
            continue;
        }
        direction.batch[direction.batched++] = index;
        if (direction.batched == Port::kBatch) {
            flush(direction);
            now = clock_ns();
        }
    }
    for (const auto& direction : directions_)
        if (direction->batched > 0) flush(*direction);
}

// The packets of a batch leave one after the other, at about the same distances.
void Forwarder::flush(Direction& direction) {
    const std::size_t count = direction.batched;
    std::size_t done = 0;
    while (done < count) {
        const std::int64_t begin = clock_ns();
        const std::size_t sent = direction.out.send(*pool_, direction.batch.data() + done, count - done);
        const std::int64_t took = sent > 0 ? clock_ns() - begin : 0;
        for (std::size_t i = 0; i < sent; ++i) {
            const std::int64_t actual = begin + took * static_cast<std::int64_t>(i + 1) / static_cast<std::int64_t>(sent);
            direction.line.departed((*pool_)[direction.batch[done + i]], actual);
        }
        done += sent;
        if (sent == 0) direction.line.unsent((*pool_)[direction.batch[done++]]);   // the interface is down, for example
    }
    for (std::size_t i = 0; i < count; ++i) pool_->give(direction.batch[i]);
    direction.batched = 0;
}

std::int64_t Forwarder::next_event() {
    std::int64_t next = departures_.next();
    for (const auto& direction : directions_) next = std::min(next, direction->line.next(*pool_));
    return next;
}

void Forwarder::wait(std::int64_t until) {
    std::array<epoll_event, 16> events;
    // Nothing reports that an interface is deleted after it was down.
    for (const auto& direction : directions_)
        if (direction->in.is_down()) until = std::min(until, clock_ns() + kLookForDeleted);
    timespec timeout{};
    if (until > 0 && until != INT64_MAX) {
        const std::int64_t left = std::max<std::int64_t>(0, until - clock_ns());
        timeout = {left / 1'000'000'000, left % 1'000'000'000};
    }
    const int ready = epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()),
                                   until == INT64_MAX ? nullptr : &timeout, nullptr);
    if (ready < 0 && errno != EINTR) throw Failure(kSystem, "cannot wait for packets: " + errno_text());
    for (int i = 0; i < ready; ++i) handle(events[static_cast<std::size_t>(i)]);
}

void Forwarder::handle(const epoll_event& event) {
    if (event.data.u32 == kStandardInput)
        read_commands();
    else if ((event.events & EPOLLERR) != 0)
        directions_[event.data.u32]->in.take_error();
}

void Forwarder::read_commands() {
    char text[kLongestLine];
    const ssize_t length = read(STDIN_FILENO, text, sizeof text);
    if (length < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (length < 0) throw Failure(kSystem, "cannot read standard input: " + errno_text());
    ended_ = length == 0;
    input_.append(text, static_cast<std::size_t>(length));
    for (std::size_t end; (end = input_.find('\n')) != std::string::npos;) {
        obey(input_.substr(0, end));
        input_.erase(0, end + 1);
    }
    if (input_.size() > kLongestLine) throw Failure(kUsage, "standard input: a line is longer than 4096 bytes");
}

void Forwarder::obey(const std::string& line) {
    if (line == "start") return start();
    if (line == "stop") return stop();
    if (line.rfind("outage ", 0) == 0) return change_outage(line.substr(7));
    throw Failure(kUsage, "standard input: " + json_text(line) + " is not start, stop, or outage NAME STATE [at TIME]");
}

void Forwarder::start() {
    started_ = clock_ns();
    for (const auto& direction : directions_) {
        direction->in.missed();
        direction->line.start(started_);
    }
    for (const auto& link : links_) link->outages.clear();
    late_ = 0;
    answer(started_);
}

void Forwarder::stop() {
    const std::int64_t now = clock_ns();
    // What has arrived before, but not what arrives all the time.
    for (int round = 0; round < kLastRounds && receive(clock_ns()); ++round) depart();
    Json links = Json::object();
    for (std::size_t i = 0; i < links_.size(); ++i) {
        Json& result = links[config_.links[i].name];
        for (const auto& [name, number] : {std::pair{"up", 2 * i}, {"down", 2 * i + 1}}) {
            Direction& direction = *directions_[number];
            direction.line.statistics().missed(direction.in.missed());
            result[name] = direction.line.statistics().json();
            direction.line.stop();
        }
    }
    const Json document = {{"started_us", started_ / 1000}, {"seconds", json_seconds(now - started_)}, {"links", links}};
    std::printf("%s\n", json_text(document).c_str());
    std::fflush(stdout);
}

void Forwarder::change_outage(const std::string& words) {
    const std::size_t space = std::min(words.find(' '), words.size());
    const std::string name = words.substr(0, space);
    const Change change = parse_change(space < words.size() ? words.substr(space + 1) : "");
    const std::int64_t now = clock_ns(), time = std::max(now, change.time > 0 ? change.time + late_ : now);
    bool known = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
        if (name != "*" && config_.links[i].name != name) continue;
        links_[i]->outages.change(time, change.outage);
        known = true;
    }
    if (!known) throw Failure(kUsage, "standard input: outage: no link has the name " + json_text(name));
    // What was due before begins now. It is not shorter for that, and what follows does not begin before its end.
    if (change.time > 0) late_ = time - change.time;
    answer(time);
}

}  // namespace k8sdds
