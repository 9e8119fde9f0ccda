// A graph: an application of nodes that publish and subscribe to flows (-graph). Each node is a process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "recorded_schedule.h"

namespace k8sdds {

struct Flow {
    std::string name;
    uint32_t bytes = 0;                       // of a sample with its overhead; of the longest if lengths vary
    double rate = 0;                          // samples per second; 0: by a schedule or after other flows
    std::shared_ptr<const RecordedSchedule> recorded;
    std::vector<unsigned> after;              // a sample follows a new sample of each of these flows
    int64_t compute_ns = 0;                   // before each sample of such a flow
    bool reliable = true;
    int64_t deadline_ns = 0;                  // after a sample was due
    int64_t batch_bytes = 0;                  // 0: no batching

    unsigned publisher = 0;                   // node
    std::vector<unsigned> subscribers;        // nodes
    unsigned origin = 0;                      // the flow with a rate or a schedule from which this one comes, by first inputs
    int64_t period_ns = 0;                    // mean time between samples of the origin
};

struct GraphNode {
    std::string name;
    std::vector<unsigned> publishes, subscribes;          // flows
};

struct Graph {
    static constexpr size_t max_flows = 500, max_nodes = 500, max_bytes = 4 << 20;    // of a file
    static constexpr uint32_t origin_bytes = 8;           // at the beginning of each payload
    static constexpr int64_t max_compute_us = 10'000'000, max_deadline_us = 1'000'000'000'000;

    std::vector<Flow> flows;
    std::vector<GraphNode> nodes;
    int64_t digest = 0;                       // of the text

    // Returns the index of a node; -1 if there is none with this name.
    int find_node(const std::string& name) const;
    // Returns the publishers of a flow and of all flows before it in its chain, the origin last.
    std::vector<unsigned> chain(unsigned flow) const;
};

// Reads a text (docs/reference/perftest.md, Graphs). Throws std::invalid_argument with the message for the user.
Graph parse_graph(const std::string& text);

// Reads a file in the same way.
std::shared_ptr<const Graph> read_graph(const std::string& path);

}  // namespace k8sdds
