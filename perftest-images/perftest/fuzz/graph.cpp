// A graph (-graph).
#include <algorithm>
#include <stdexcept>

#include "../../fuzz/fuzz.h"
#include "options.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    try {
        const Graph graph = parse_graph(std::string(reinterpret_cast<const char*>(data), size));
        for (unsigned number = 0; number < graph.flows.size(); ++number) {
            const Flow& flow = graph.flows[number];
            fuzz::require(is_data_length(flow.bytes) && flow.bytes >= sample_overhead + Graph::origin_bytes, "a length is valid");
            fuzz::require(flow.publisher < graph.nodes.size() && !flow.subscribers.empty(), "a flow has a publisher and subscribers");
            fuzz::require(!std::count(flow.subscribers.begin(), flow.subscribers.end(), flow.publisher), "a node does not receive its own flow");
            fuzz::require(flow.after.empty() == (flow.origin == number), "only a flow without inputs is its own origin");
            fuzz::require(graph.flows[flow.origin].after.empty() && flow.period_ns > 0 && flow.deadline_ns > 0, "an origin has a period");
            fuzz::require(graph.chain(number).size() <= graph.flows.size(), "a chain ends");
        }
    } catch (const std::invalid_argument& error) {
        fuzz::require(*error.what() != '\0', "an error has a message");
    }
    return 0;
}
