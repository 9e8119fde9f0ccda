// A QoS profile (DDS-XML).
#include "../../fuzz/fuzz.h"
#include "options.h"
#include "qos_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    try {
        const QosProfile profile = parse_qos("FILE", {reinterpret_cast<const char*>(data), size});
        for (const EndpointQos* e : {&profile.writer, &profile.reader}) {
            fuzz::require(e->depth >= 1 && e->depth <= INT32_MAX, "the depth of the history is valid");
            for (const int64_t limit : {e->max_samples, e->max_instances, e->max_samples_per_instance})
                fuzz::require(limit == infinite || (limit >= 1 && limit <= INT32_MAX), "a limit is valid");
            for (const int64_t ns : {e->deadline_ns, e->latency_budget_ns, e->lifespan_ns, e->max_blocking_ns})
                fuzz::require(ns >= infinite, "a duration is valid");
        }
    } catch (const UsageError& error) {
        fuzz::require(std::strncmp(error.what(), "-qosFile: FILE", 14) == 0, "an error names the file");
    }
    return 0;
}
