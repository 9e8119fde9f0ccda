// Forwards between the interfaces of all links, in one thread.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config.h"
#include "line.h"
#include "outage.h"
#include "packets.h"
#include "port.h"

namespace k8sdds {

class Forwarder {
public:
    explicit Forwarder(const Config& config);
    ~Forwarder();
    Forwarder(const Forwarder&) = delete;
    Forwarder& operator=(const Forwarder&) = delete;

    void run();                             // until standard input ends

private:
    struct Link {
        explicit Link(const LinkConfig& config) : near(config.near), far(config.far) {}
        Outages outages;
        Port near, far;
    };
    struct Direction {
        Direction(const LinkConfig& config, bool up, std::uint64_t seed, Link& link, std::uint16_t index)
            : line(config, up, seed, link.outages, index), in(up ? link.near : link.far), out(up ? link.far : link.near) {}
        Line line;
        Port& in;
        Port& out;
        std::int64_t last_arrival = 0;
        std::array<std::uint32_t, Port::kBatch> batch;         // packets that are due
        std::size_t batched = 0;
    };

    bool receive(std::int64_t now);         // takes what has arrived; whether anything had
    void take(Direction& direction, const Port::Frame& frame, std::int64_t now);
    void depart();                          // sends what is due
    void flush(Direction& direction);
    std::int64_t next_event();
    void wait(std::int64_t until);
    void handle(const epoll_event& event);
    void read_commands();
    void obey(const std::string& line);
    void start();
    void stop();
    void change_outage(const std::string& words);

    const Config& config_;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<std::unique_ptr<Direction>> directions_;
    std::unique_ptr<Pool> pool_;
    Departures departures_;
    int epoll_;
    std::string input_;                     // a line of standard input that is not complete
    std::int64_t started_ = 0;
    std::int64_t late_ = 0;                 // by which all scheduled states of links are later
    bool ended_ = false;
};

}  // namespace k8sdds
