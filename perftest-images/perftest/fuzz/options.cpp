// The command line of k8sdds-perftest, one argument per line.
#include "../../fuzz/fuzz.h"
#include "json.h"
#include "settings.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    fuzz::Arguments arguments(data, size);
    try {
        Options options = parse_options(arguments.count(), arguments.values());
        if (options.help || options.version) return 0;
        make_settings(options);
        fuzz::require(Json::accept(json_text(resolved_options(options))), "the resolved options are JSON");
    } catch (const UsageError& error) {
        fuzz::require(*error.what() != '\0', "an error has a message");
    }
    return 0;
}
