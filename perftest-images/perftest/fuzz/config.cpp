// A configuration file of a middleware, with rules like those of the backends.
#include "../../fuzz/fuzz.h"
#include "config_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    static const ConfigRules rules = {
        "CycloneDDS", {"-Domain/Internal/Watermarks", "Domain/Internal", "Domain/Sizing", "profiles/participant/rtps"},
        "refused"};
    ConfigFile file;
    const std::string problem = file.parse("FILE", {reinterpret_cast<const char*>(data), size}, rules);
    if (!problem.empty()) {
        fuzz::require(problem.rfind("-middlewareConfig: FILE", 0) == 0, "a problem names the file");
        return 0;
    }
    fuzz::require(!file.has("Domain/Internal/Watermarks"), "a refused element is not accepted");
    ConfigFile again;
    fuzz::require(again.parse("FILE", file.text(), rules).empty(), "what is passed on to the library is accepted too");
    return 0;
}
