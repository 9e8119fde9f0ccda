// k8sdds-link: forwards packets between pairs of interfaces as links with losses, delays, rates and outages do.

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "config.h"
#include "failure.h"
#include "forwarder.h"

namespace {

using namespace k8sdds;

// Wakes up as exactly as this user may.
void prepare(const Config& config) {
    if (config.cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(static_cast<unsigned>(config.cpu), &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
            throw Failure(kUsage, "cpu: cannot run on core " + std::to_string(config.cpu) + ": " + errno_text());
    }
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    sched_param priority{};
    priority.sched_priority = sched_get_priority_min(SCHED_FIFO);
    sched_setscheduler(0, SCHED_FIFO, &priority);
    // An idle core that halts takes up to 250 µs to wake up in a virtual machine, longer than what may be wrong with a
    // delay. The kernel ends this request when the file is closed, however this program ends.
    const int latency = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    constexpr int32_t none_us = 0;
    if (latency >= 0 && write(latency, &none_us, sizeof none_us) < 0) close(latency);
}

int run(int argc, char** argv) {
    if (argc != 2) throw Failure(kUsage, "usage: k8sdds-link CONFIG.json");
    if (argv[1] == std::string("--version")) {
        std::printf("k8sdds-link %s\n", K8SDDS_VERSION);
        return 0;
    }
    const Config config = read_config(argv[1]);
    Forwarder forwarder(config);
    prepare(config);
    std::fprintf(stderr, "ready\n");
    forwarder.run();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("k8sdds-link", [&] { return run(argc, argv); });
}
