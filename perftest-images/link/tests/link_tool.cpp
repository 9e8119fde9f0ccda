// A tool for the tests: what a direction of a link does to packets, in virtual time and without sockets.
//
//   k8sdds-link-tool CONFIG LINK up|down START_US
//
// Each line of standard input is a packet: its arrival in µs, its length, and `udp` or `other`; or a command: its time in µs,
// 0, and `outage STATE`. Prints a line for each packet, in the order of arrival: `passes PLANNED_NS [PLANNED_NS of its
// copy]`, or why it is dropped. At START_US, `start` takes effect.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "line.h"

using namespace k8sdds;

namespace {

constexpr std::size_t kPackets = 1 << 17, kRoom = 2048;

int simulate(const Config& config, const LinkConfig& link, bool up, std::int64_t start) {
    Pool pool(kPackets, kRoom, 0, 0);
    Departures departures(kPackets);
    Outages outages;
    Line line(link, up, config.seed, outages, 0);
    line.start(start);
    std::map<std::uint64_t, std::string> results;
    std::uint64_t number = 0;
    const auto depart = [&](std::int64_t until) {
        while (!departures.empty() && departures.next() <= until) {
            const std::uint32_t index = departures.take();
            Packet& packet = pool[index];
            std::string& result = results[packet.number];
            if (result == "queue") result = "";
            if (!line.leaves(packet)) {
                result = "outage";
            } else {
                result += (result.empty() ? "passes " : " ") + std::to_string(packet.planned);
                line.departed(packet, packet.planned);
            }
            pool.give(index);
        }
    };
    double us = 0;
    std::uint32_t bytes = 0;
    std::string kind;
    while (std::cin >> us >> bytes >> kind) {
        Line::Arrival arrival{std::llround(us * 1e3), bytes, kind == "udp", false};
        line.advance(pool, departures, arrival.time);
        depart(arrival.time);
        if (kind == "outage") {
            std::string words;
            std::getline(std::cin >> std::ws, words);
            outages.change(arrival.time, parse_outage(words));
            continue;
        }
        const Line::Fate fate = line.decide(arrival);
        results[++number] = fate == Line::Fate::kPasses ? "queue" : fate == Line::Fate::kOutage ? "outage" : "loss";
        if (fate == Line::Fate::kPasses) line.add(pool, departures, pool.take(bytes));
    }
    line.advance(pool, departures, INT64_MAX);
    depart(INT64_MAX);
    for (const auto& [n, result] : results) std::printf("%s\n", result.c_str());
    std::fprintf(stderr, "%s\n", json_text(line.statistics().json()).c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("k8sdds-link-tool", [&] {
        if (argc != 5) throw Failure(kUsage, "usage: k8sdds-link-tool CONFIG LINK up|down START_US");
        const Config config = read_config(argv[1]);
        for (const LinkConfig& link : config.links)
            if (link.name == argv[2])
                return simulate(config, link, argv[3] == std::string("up"), std::llround(std::stod(argv[4]) * 1e3));
        throw Failure(kUsage, "no such link");
    });
}
