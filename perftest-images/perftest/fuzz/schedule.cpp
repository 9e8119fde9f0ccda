// A recorded schedule (-schedule).
#include <stdexcept>

#include "../../fuzz/fuzz.h"
#include "options.h"
#include "rate_profile.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    try {
        const auto recorded = std::make_shared<RecordedSchedule>(std::string(reinterpret_cast<const char*>(data), size));
        const RateProfile profile(recorded);
        constexpr int64_t within_ns = 1'000'000;
        const uint64_t samples = profile.samples_before(within_ns);
        fuzz::require(samples >= 1 && profile.due_ns(0) == 0, "the first sample is due at the start");
        for (uint64_t number = 0; number < samples; ++number) {
            fuzz::require(profile.due_ns(number) <= profile.due_ns(number + 1), "samples are due in order");
            fuzz::require(is_data_length(recorded->length(number)) && recorded->length(number) <= recorded->longest(),
                          "a length is valid");
        }
    } catch (const std::invalid_argument& error) {
        fuzz::require(*error.what() != '\0', "an error has a message");
    }
    return 0;
}
