// The configuration of k8sdds-link, a JSON document.
#include "../../fuzz/fuzz.h"
#include "config.h"
#include "frame.h"
#include "outage.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    carries_udp(data, size);
    try {
        const auto& [outage, time] = parse_change({reinterpret_cast<const char*>(data), size});
        fuzz::require(outage.share >= 0 && outage.share <= 1 && outage.mbit >= 0, "an outage is a share or a rate");
        fuzz::require(time >= 0, "a time is not negative");
    } catch (const Failure&) {
    }
    try {
        const Config config = parse_config({reinterpret_cast<const char*>(data), size});
        fuzz::require(!config.links.empty(), "there is a link");
        for (const LinkConfig& link : config.links)
            for (const DirectionConfig* direction : {&link.up, &link.down}) {
                const LossConfig& loss = direction->loss;
                for (const double share : {loss.independent, loss.p, loss.r, loss.h, loss.k, direction->delay.correlation})
                    fuzz::require(share >= 0 && share <= 1, "a probability is from 0 to 1");
                const auto& trace = direction->rate.trace_ns;
                fuzz::require(trace.empty() || trace.back() > 0, "a trace has a length");
            }
    } catch (const Failure& failure) {
        fuzz::require(failure.exit_code == kUsage, "an error is one of usage");
        fuzz::require(*failure.what() != '\0' && std::strchr(failure.what(), '\n') == nullptr, "an error is one line");
    }
    return 0;
}
