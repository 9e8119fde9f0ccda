// A tool for the tests: one participant of a middleware, with the options of k8sdds-perftest, that does what each line of
// standard input requests and prints a number after it.
//
//   write COUNT        writes samples to the instances in turn; prints how many
//   take               takes the samples that have arrived (-receive waitset); prints how many since the start
//   announce VERSION   announces the start of a run in a version of the protocol; prints whether it was sent
#include <poll.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "loader.h"
#include "settings.h"

namespace k8sdds {
namespace {

class Counter final : public Events {
public:
    void on_announcement(const Announcement&) override {}
    void on_match() override {}
    void on_sample(const Sample&) override { ++samples; }
    void on_received() override {}
    std::atomic<uint64_t> samples{0};
};

bool match(Backend& backend) {
    for (int i = 0; i < 1000; ++i) {
        const Matches matches = backend.matches();
        if (matches.writer && matches.reader) return true;
        poll(nullptr, 0, 10);
    }
    return false;
}

uint32_t write(Backend& backend, const Settings& settings, uint32_t count) {
    const std::vector<uint8_t> payload(settings.data_length - sample_overhead);
    Sample sample;
    sample.payload = payload.data();
    sample.payload_length = static_cast<uint32_t>(payload.size());
    for (; sample.sequence < count; ++sample.sequence) {
        sample.instance = sample.sequence % settings.instances;
        if (backend.write(sample) != Written::ok) break;
    }
    backend.flush();
    return sample.sequence;
}

bool announce(Backend& backend, const Settings& settings, uint16_t version) {
    Announcement start;
    start.kind = Kind::start;
    start.role = settings.role;
    start.version = version;
    start.instance = start.run = 5;
    start.nonce = settings.nonce;
    start.value[3] = 1 << 20;
    return backend.announce(start);
}

int run(int argc, char** argv) {
    Options options = parse_options(argc, argv);
    const Settings settings = make_settings(options);
    const auto backend = load_backend(options.middleware);
    Counter counter;
    backend->open(settings, counter);
    const bool matched = match(*backend);
    std::string request;
    uint32_t number = 0;
    while (matched && std::cin >> request) {
        if (request != "take") std::cin >> number;
        if (request == "write") number = write(*backend, settings, number);
        else if (request == "announce") number = announce(*backend, settings, static_cast<uint16_t>(number));
        else if (backend->wait(0)) backend->take();
        std::cout << (request == "take" ? counter.samples.load() : number) << std::endl;
    }
    backend->close();
    return !matched;
}

}  // namespace
}  // namespace k8sdds

int main(int argc, char** argv) {
    try {
        return k8sdds::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "k8sdds-backend-tool: %s\n", error.what());
        return 2;
    }
}
