// Announcements and samples from the network, at a publisher or a subscriber in the middle of a run, or at a node of a graph that
// is waiting for the others. The input is a role and a sequence of messages: datagrams of the raw backend as they are, with the right magic, or also with the nonce of
// the run, and samples with or without the right run number.
#include <set>
#include <string>

#include "../../fuzz/fuzz.h"
#include "publisher.h"
#include "control_message.h"
#include "node.h"
#include "settings.h"
#include "subscriber.h"

namespace {

using namespace k8sdds;

class Network final : public Backend {
public:
    uint32_t run = 0;                                      // that the process announced last
    std::string version() const override { return ""; }
    std::string unsupported(const Settings&) const override { return ""; }
    void open(const Settings&, Events&) override {}
    void close() override {}
    Matches matches() override { return {2, 2, 0}; }
    TransportFacts facts() override { return {}; }
    EffectiveQos effective_qos() override { return {}; }
    Written write(const Sample&) override { return Written::ok; }
    void flush() override {}
    std::string last_error() const override { return ""; }
    bool wait(int64_t) override { return false; }
    unsigned take() override { return 0; }
    bool announce(const Announcement& a) override {
        if (a.run) run = a.run;
        return true;
    }
};

constexpr uint64_t nonce = 0x0123456789abcdef;

Options options_of(bool publisher, unsigned variant) {
    std::vector<std::string> arguments = {"program", publisher ? "-pub" : "-sub", "-nic", "lo", "-dataLen", "64"};
    if (publisher && variant == 1) arguments.push_back("-latencyTest");
    if (publisher && variant == 2)
        for (const char* argument : {"-pacedTest", "-pubRate", "1000:sleep", "-executionTime", "1"}) arguments.push_back(argument);
    if (variant == 3) for (const char* argument : {"-keyed", "-instances", "5"}) arguments.push_back(argument);
    arguments.insert(arguments.end(), {publisher ? "-numSubscribers" : "-numPublishers", "2"});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    return parse_options(static_cast<int>(pointers.size()), pointers.data());
}

Options options_of_node() {
    Options options;
    options.graph = std::make_shared<Graph>(parse_graph("graph 1\n"
                                                        "flow x bytes 64 rate 10 reliable\n"
                                                        "flow y bytes 64 rate 10 best-effort\n"
                                                        "flow z bytes 64 after x,y reliable\n"
                                                        "node a publishes x subscribes z\n"
                                                        "node b publishes z subscribes x,y\n"
                                                        "node c publishes y subscribes z\n"));
    options.node_index = 1;
    options.node = options.graph->nodes[options.node_index].name;
    options.data_length = 64;
    options.execution_time = 1;
    return options;
}

Sample sample_of(fuzz::Input& input, const std::vector<uint8_t>& payload) {
    Sample sample;
    sample.run = input.next<uint32_t>();
    sample.sequence = input.next<uint32_t>();
    sample.sent_ns = input.next<int64_t>();
    sample.ping = input.next<int32_t>();
    sample.publisher = input.next<uint16_t>() & 3;
    sample.instance = input.next<uint32_t>();
    sample.writer = input.next<uint16_t>() & 3;
    sample.phase = static_cast<Phase>(input.next<uint8_t>());
    sample.payload = payload.data();
    sample.payload_length = input.next<uint8_t>() % 2 ? 36 : input.next<uint32_t>() % static_cast<uint32_t>(payload.size());
    return sample;
}

// What receives the messages.
struct Receiver {
    Receiver(bool is_node, bool is_publisher, unsigned variant)
        : options(is_node ? options_of_node() : options_of(is_publisher, variant)), settings(make_settings(options)) {
        settings.nonce = nonce;
        if (is_node) participant = std::make_unique<Node>(options, settings, network, state);
        else if (is_publisher) participant = std::make_unique<Publisher>(options, settings, network, state, histogram);
        else participant = std::make_unique<Subscriber>(options, settings, network, state, histogram, &gaps);
        participant->assert_liveliness();                  // announces the run of a publisher
    }

    Options options;
    Settings settings;
    Network network;
    State state;
    Histogram histogram, gaps;
    std::unique_ptr<Participant> participant;
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const std::vector<uint8_t> payload(65536, 0xa5);
    fuzz::Input input(data, size);
    const uint8_t setup = input.next<uint8_t>();
    const bool node = setup & 8, publisher = !node && setup & 1;
    Receiver receiver(node, publisher, setup >> 1 & 3);
    const Network& network = receiver.network;
    const State& state = receiver.state;
    const std::unique_ptr<Participant>& participant = receiver.participant;

    std::set<uint32_t> runs;                               // of the publishers that have announced START, and of nodes
    uint64_t authentic = 0, possible = 0;
    while (!input.empty()) {
        const uint8_t operation = input.next<uint8_t>();
        if (operation & 1) {
            Sample sample = sample_of(input, payload);
            if (operation & 2) sample.run = network.run;
            possible += runs.count(sample.run);
            participant->on_sample(sample);
            participant->on_received();
            continue;
        }
        auto datagram = input.next<ControlMessage>();
        const ControlMessage expected = control_message({}, 0);
        if (operation & 2) std::memcpy(datagram.magic, expected.magic, sizeof expected.magic);
        auto announcement = read_control_message(&datagram, sizeof datagram, 0);
        if (!announcement) continue;
        if (operation & 4) {
            announcement->nonce = nonce;
            announcement->version = announcement_version;
        }
        if (operation & 8) announcement->run = network.run ? network.run : announcement->run;
        const bool of_run = announcement->nonce == nonce && announcement->version == announcement_version;
        authentic += of_run;
        if (of_run && announcement->kind == (node ? Kind::ready : Kind::start)) runs.insert(announcement->run);
        participant->on_announcement(*announcement);
        participant->check_peers(now_ns());
    }
    const Results results = participant->results();
    if (!authentic) {
        fuzz::require(!state.stopped.load(), "a foreign message does not end a run");
        fuzz::require(publisher || state.samples.load() == 0, "a foreign sample does not count");
    }
    if (!publisher) fuzz::require(state.samples.load() <= possible, "only samples of the run count");
    static_cast<void>(results);
    return 0;
}
