#include "graph.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "options.h"
#include "state.h"
#include "text_lines.h"
#include "user_file.h"

namespace k8sdds {
namespace {

constexpr size_t longest_name = 60;
constexpr uint32_t least_bytes = sample_overhead + Graph::origin_bytes;

// Reads the statements of a graph one after the other. Names of flows are resolved when all are known.
class Reader {
public:
    Graph read(const std::string& text);

private:
    using Numbers = std::map<std::string, unsigned>;

    void add(const TextLine&);
    void add_flow(const TextLine&);
    void add_node(const TextLine&);
    size_t set(Flow&, const TextLine&, size_t word);
    void set_schedule(Flow&, const TextLine&, const std::string& schedule);
    static void check(const Flow&, const TextLine&, const std::vector<std::string>& keys);
    void connect(unsigned node);
    void connect_inputs(unsigned flow);
    void set_origins();

    static const std::string& argument(const TextLine& line, size_t word);
    static int64_t number(const TextLine& line, size_t word, int64_t low, int64_t high);
    static std::string name(const TextLine& line, const std::string& word);
    static std::vector<std::string> names(const TextLine& line, size_t word);
    static unsigned add_name(Numbers&, const TextLine&, const std::string& kind, size_t most);
    std::vector<unsigned> flows(const TextLine& line, const std::vector<std::string>& names) const;

    Graph graph_;
    bool begun_ = false;                                   // whether the first line was read
    Numbers flow_numbers_, node_numbers_;
    std::vector<TextLine> flow_lines_, node_lines_;
    std::vector<std::vector<std::string>> inputs_;         // names after `after`, by flow
};

const std::string& Reader::argument(const TextLine& line, size_t word) {
    if (word >= line.words.size()) line.refuse("the value of '" + line.words[word - 1] + "' is missing");
    return line.words[word];
}

int64_t Reader::number(const TextLine& line, size_t word, int64_t low, int64_t high) {
    const int64_t value = whole_number(argument(line, word));
    if (value < low || value > high)
        line.refuse(line.words[word - 1] + ": '" + one_line(line.words[word], longest_name) + "' is not a number from " +
                    std::to_string(low) + " to " + std::to_string(high));
    return value;
}

std::string Reader::name(const TextLine& line, const std::string& word) {
    if (word.empty() || word.size() > longest_name ||
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") != std::string::npos)
        line.refuse("'" + one_line(word, longest_name) + "' is not a name; give 1 to " + std::to_string(longest_name) +
                    " of the characters a-z, 0-9, _ and -");
    return word;
}

// Returns the names in a word, with commas between them.
std::vector<std::string> Reader::names(const TextLine& line, size_t word) {
    const std::string& list = argument(line, word);
    std::vector<std::string> all;
    for (size_t from = 0; from <= list.size();) {
        const size_t to = std::min(list.find(',', from), list.size());
        if (all.size() == Graph::max_flows) line.refuse("more than " + std::to_string(Graph::max_flows) + " flows in a list; give fewer");
        all.push_back(name(line, list.substr(from, to - from)));
        if (std::count(all.begin(), all.end(), all.back()) > 1) line.refuse("'" + all.back() + "' is twice in a list");
        from = to + 1;
    }
    return all;
}

unsigned Reader::add_name(Numbers& numbers, const TextLine& line, const std::string& kind, size_t most) {
    const auto next = static_cast<unsigned>(numbers.size());
    if (next == most) line.refuse("more than " + std::to_string(most) + " " + kind + "s; give fewer");
    if (!numbers.emplace(name(line, argument(line, 1)), next).second)
        line.refuse("the " + kind + " '" + line.words[1] + "' is already above");
    return next;
}

std::vector<unsigned> Reader::flows(const TextLine& line, const std::vector<std::string>& names) const {
    std::vector<unsigned> numbers;
    for (const std::string& name : names) {
        const auto found = flow_numbers_.find(name);
        if (found == flow_numbers_.end()) line.refuse("there is no flow '" + name + "'");
        numbers.push_back(found->second);
    }
    return numbers;
}

// The word PERIOD:TIME/BYTES,TIME/BYTES has what a file with a recorded schedule has in lines.
void Reader::set_schedule(Flow& flow, const TextLine& line, const std::string& schedule) {
    std::string lines = "period " + schedule;
    std::replace(lines.begin(), lines.end(), ':', '\n');
    std::replace(lines.begin(), lines.end(), ',', '\n');
    std::replace(lines.begin(), lines.end(), '/', ' ');
    try {
        flow.recorded = std::make_shared<RecordedSchedule>(lines);
    } catch (const std::invalid_argument& error) {
        line.refuse(std::string("schedule, with a line for each of its parts: ") + error.what());
    }
    if (flow.recorded->shortest() < least_bytes)
        line.refuse("schedule: has a sample of " + std::to_string(flow.recorded->shortest()) +
                    " bytes; in a graph, samples have at least " + std::to_string(least_bytes));
    flow.bytes = flow.recorded->longest();
}

// Sets what a word and its value state. Returns the index of the next word.
size_t Reader::set(Flow& flow, const TextLine& line, size_t word) {
    const std::string& key = line.words[word];
    if (key == "reliable" || key == "best-effort") {
        flow.reliable = key == "reliable";
        return word + 1;
    }
    const size_t value = word + 1;
    if (key == "bytes") flow.bytes = static_cast<uint32_t>(number(line, value, least_bytes, max_data_length));
    else if (key == "schedule") set_schedule(flow, line, argument(line, value));
    else if (key == "after") inputs_.back() = names(line, value);
    else if (key == "compute_us") flow.compute_ns = 1000 * number(line, value, 0, Graph::max_compute_us);
    else if (key == "deadline_us") flow.deadline_ns = 1000 * number(line, value, 1, Graph::max_deadline_us);
    else if (key == "batch") flow.batch_bytes = number(line, value, 1, 1'000'000'000);
    else if (key != "rate")
        line.refuse("'" + one_line(key, longest_name) + "' is not a word of a flow; give bytes, rate, schedule, after, "
                    "compute_us, deadline_us, batch, reliable or best-effort");
    else {
        flow.rate = decimal_number(argument(line, value)).value_or(0);
        if (flow.rate < lowest_rate || flow.rate > highest_rate)
            line.refuse("rate: '" + one_line(line.words[value], longest_name) + "' is not a number from 0.001 to 10000000");
    }
    return word + 2;
}

void Reader::check(const Flow& flow, const TextLine& line, const std::vector<std::string>& keys) {
    const auto has = [&](const char* key) { return std::count(keys.begin(), keys.end(), key); };
    if (has("rate") + has("schedule") + has("after") != 1) line.refuse("a flow has one of rate, schedule and after");
    if (has("schedule") && has("bytes")) line.refuse("a schedule states the sizes of samples; remove bytes");
    if (!flow.bytes) line.refuse("bytes is missing");
    if (has("compute_us") && !has("after")) line.refuse("only a flow with after has compute_us");
    if (has("reliable") == has("best-effort")) line.refuse("a flow is either reliable or best-effort; give one of them");
}

void Reader::add_flow(const TextLine& line) {
    add_name(flow_numbers_, line, "flow", Graph::max_flows);
    Flow flow;
    flow.name = line.words[1];
    inputs_.emplace_back();
    std::vector<std::string> keys;
    for (size_t word = 2; word < line.words.size();) {
        keys.push_back(line.words[word]);
        word = set(flow, line, word);
        if (std::count(keys.begin(), keys.end(), keys.back()) > 1) line.refuse("'" + keys.back() + "' is given twice");
    }
    check(flow, line, keys);
    graph_.flows.push_back(flow);
    flow_lines_.push_back(line);
}

void Reader::add_node(const TextLine& line) {
    add_name(node_numbers_, line, "node", Graph::max_nodes);
    graph_.nodes.push_back({line.words[1], {}, {}});
    node_lines_.push_back(line);
}

// Connects a node with its flows.
void Reader::connect(unsigned index) {
    const TextLine& line = node_lines_[index];
    GraphNode& node = graph_.nodes[index];
    for (size_t word = 2; word < line.words.size(); word += 2) {
        const std::string& key = line.words[word];
        std::vector<unsigned>& list = key == "publishes" ? node.publishes : node.subscribes;
        if (key != "publishes" && key != "subscribes")
            line.refuse("'" + one_line(key, longest_name) + "' is not a word of a node; give publishes or subscribes");
        if (!list.empty()) line.refuse("'" + key + "' is given twice");
        list = flows(line, names(line, word + 1));
    }
    if (node.publishes.empty() && node.subscribes.empty()) line.refuse("the node neither publishes nor subscribes");
    for (const unsigned number : node.publishes) {
        Flow& flow = graph_.flows[number];
        if (flow.publisher != graph_.nodes.size())
            line.refuse("the flow '" + flow.name + "' is already published by '" + graph_.nodes[flow.publisher].name + "'");
        flow.publisher = index;
    }
    for (const unsigned number : node.subscribes) {
        graph_.flows[number].subscribers.push_back(index);
        if (std::count(node.publishes.begin(), node.publishes.end(), number))
            line.refuse("the node subscribes to its own flow '" + graph_.flows[number].name + "'");
    }
}

void Reader::connect_inputs(unsigned number) {
    const TextLine& line = flow_lines_[number];
    Flow& flow = graph_.flows[number];
    if (flow.publisher == graph_.nodes.size()) line.refuse("no node publishes the flow '" + flow.name + "'");
    if (flow.subscribers.empty()) line.refuse("no node subscribes to the flow '" + flow.name + "'");
    flow.after = flows(line, inputs_[number]);
    const GraphNode& node = graph_.nodes[flow.publisher];
    for (const unsigned input : flow.after)
        if (!std::count(node.subscribes.begin(), node.subscribes.end(), input))
            line.refuse("the node '" + node.name + "' publishes '" + flow.name + "' after '" + graph_.flows[input].name +
                        "'; let it subscribe to that flow");
}

// Sets the origin of each flow when all its inputs have one: flows in a cycle never do.
void Reader::set_origins() {
    std::vector<bool> known(graph_.flows.size());
    for (bool progress = true; progress;) {
        progress = false;
        for (unsigned number = 0; number < known.size(); ++number) {
            Flow& flow = graph_.flows[number];
            const bool ready = std::all_of(flow.after.begin(), flow.after.end(), [&](unsigned input) { return known[input]; });
            if (known[number] || !ready) continue;
            known[number] = progress = true;
            const Flow* first = flow.after.empty() ? nullptr : &graph_.flows[flow.after.front()];
            flow.origin = first ? first->origin : number;
            const double rate = flow.recorded ? flow.recorded->rate() : flow.rate;
            flow.period_ns = first ? first->period_ns : static_cast<int64_t>(1e9 / rate);
            if (!flow.deadline_ns) flow.deadline_ns = flow.period_ns;
        }
    }
    for (unsigned number = 0; number < known.size(); ++number)
        if (!known[number]) flow_lines_[number].refuse("the flow '" + graph_.flows[number].name + "' follows itself, by way of its inputs");
}

void Reader::add(const TextLine& line) {
    if (!begun_ && line.words != std::vector<std::string>{"graph", "1"})
        line.refuse(line.quoted() + " is not 'graph 1', the version of the file");
    if (!begun_) begun_ = true;
    else if (line.words[0] == "flow") add_flow(line);
    else if (line.words[0] == "node") add_node(line);
    else line.refuse(line.quoted() + " is neither a flow nor a node");
}

Graph Reader::read(const std::string& text) {
    for_each_line(text, [this](const TextLine& line) { add(line); });
    if (!begun_) throw std::invalid_argument("is empty; begin with 'graph 1'");
    if (graph_.flows.empty()) throw std::invalid_argument("has no flows");
    for (Flow& flow : graph_.flows) flow.publisher = static_cast<unsigned>(graph_.nodes.size());   // none yet
    for (unsigned node = 0; node < graph_.nodes.size(); ++node) connect(node);
    for (unsigned flow = 0; flow < graph_.flows.size(); ++flow) connect_inputs(flow);
    set_origins();
    graph_.digest = static_cast<int64_t>(hash_of(text));
    return graph_;
}

}  // namespace

int Graph::find_node(const std::string& name) const {
    for (size_t i = 0; i < nodes.size(); ++i)
        if (nodes[i].name == name) return static_cast<int>(i);
    return -1;
}

std::vector<unsigned> Graph::chain(unsigned flow) const {
    std::vector<unsigned> publishers{flows[flow].publisher};
    while (!flows[flow].after.empty()) {
        flow = flows[flow].after.front();
        publishers.push_back(flows[flow].publisher);
    }
    return publishers;
}

Graph parse_graph(const std::string& text) { return Reader().read(text); }

std::shared_ptr<const Graph> read_graph(const std::string& path) {
    std::string text;
    if (const std::string unreadable = read_text(path, text, Graph::max_bytes); !unreadable.empty())
        throw std::invalid_argument(unreadable);
    return std::make_shared<Graph>(parse_graph(text));
}

}  // namespace k8sdds
