// A tool for the tests: prints when the samples of a rate profile are due within a time, in ns, one per line; of a file
// for -schedule, also the length of each.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "rate_profile.h"

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: k8sdds-schedule-tool {PROFILE RATE | -schedule FILE} SECONDS\n");
        return 2;
    }
    try {
        using namespace k8sdds;
        const double seconds = std::atof(argv[3]);
        const auto recorded = std::strcmp(argv[1], "-schedule") == 0 ? read_schedule(argv[2]) : nullptr;
        const RateProfile profile = recorded ? RateProfile(recorded) : RateProfile(argv[1], std::atof(argv[2]), seconds);
        const uint64_t samples = profile.samples_before(static_cast<int64_t>(seconds * 1e9));
        for (uint64_t number = 0; number < samples; ++number) {
            std::printf("%lld", static_cast<long long>(profile.due_ns(number)));
            if (recorded) std::printf(" %u", recorded->length(number));
            std::printf("\n");
        }
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    return 0;
}
