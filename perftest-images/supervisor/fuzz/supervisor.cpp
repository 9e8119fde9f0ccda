// The command line of k8sdds-supervisor, one argument per line; a line of its standard input that announces a file; or a frame
// that it counts.
#include <algorithm>

#include "../../fuzz/fuzz.h"
#include "options.h"
#include "packet_kinds.h"
#include "received_file.h"
#include "support.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    constexpr std::size_t prefix = 6;
    if (size >= prefix && std::memcmp(data, "frame ", prefix) == 0) {
        const std::vector<uint8_t> frame(data + prefix, data + size);  // of its own, so that sanitizers see its end
        for (const bool link_header : {true, false}) {
            const CountedPacket packet = counted_packet(frame.data(), frame.size(), frame.size(), link_header);
            fuzz::require(static_cast<std::size_t>(packet.kind) < kKinds, "a packet has a kind");
            fuzz::require(packet.ip_bytes <= std::max<std::size_t>(frame.size(), 65535 + 40), "a packet has a size");
        }
        return 0;
    }
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
