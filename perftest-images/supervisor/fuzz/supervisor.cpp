// The command line of k8sdds-supervisor, one argument per line, or a line of its standard input that announces a file.
#include "../../fuzz/fuzz.h"
#include "options.h"
#include "received_file.h"
#include "support.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    const std::string text(reinterpret_cast<const char*>(data), size);
    try {
        if (starts_with(text, "file ")) {
            const ReceivedFile file = parse_received_file(text);
            fuzz::require(file.path[0] == '/' && file.size <= 64 << 20, "a file has an absolute path and a bounded size");
            return 0;
        }
        fuzz::Arguments arguments(data, size);
        const Options options = parse_options(arguments.count(), arguments.values());
        fuzz::require(!options.command.empty(), "there is a command");
    } catch (const Failure& failure) {
        fuzz::require(failure.exit_code == kUsage && *failure.what() != '\0', "an error is one of usage, with a message");
    }
    return 0;
}
