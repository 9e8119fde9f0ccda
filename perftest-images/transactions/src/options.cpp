#include "options.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>

namespace k8sdds {

namespace {

double number(const std::string& name, const std::string& text, double least, double most) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= least && value <= most))
        throw Failure(kUsage, name + ": '" + text + "' is not a number from " + std::to_string(least) + " to " +
                                  std::to_string(most));
    return value;
}

std::int64_t integer(const std::string& name, const std::string& text, std::int64_t least, std::int64_t most) {
    const double value = number(name, text, static_cast<double>(least), static_cast<double>(most));
    if (value != std::floor(value)) throw Failure(kUsage, name + ": '" + text + "' is not an integer");
    return static_cast<std::int64_t>(value);
}

using Setter = std::function<void(Options&, const std::string&)>;

const std::map<std::string, Setter>& setters() {
    static const std::map<std::string, Setter> by_name = {
        {"--address", [](Options& o, const std::string& v) { o.address = v; }},
        {"--port",
         [](Options& o, const std::string& v) { o.port = std::to_string(integer("--port", v, 1, 65535)); }},
        {"--bytes",
         [](Options& o, const std::string& v) {
             o.bytes = static_cast<std::size_t>(integer("--bytes", v, 1, kMaxBytes));
         }},
        {"--connections",
         [](Options& o, const std::string& v) {
             o.connections = static_cast<int>(integer("--connections", v, 1, 1024));
         }},
        {"--warm-up", [](Options& o, const std::string& v) { o.warmup_s = number("--warm-up", v, 0, 86400); }},
        {"--time", [](Options& o, const std::string& v) { o.time_s = number("--time", v, 0.001, 86400); }},
        {"--histogram-file", [](Options& o, const std::string& v) { o.histogram_file = v; }},
    };
    return by_name;
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    const std::string role = argc > 1 ? argv[1] : "";
    if (role != "client" && role != "server")
        throw Failure(kUsage, "usage: k8sdds-transactions client|server --address A --port N [--udp | --new-connections] "
                              "[--bytes N] [--connections N]; client: --time S [--warm-up S] [--histogram-file FILE]");
    options.client = role == "client";
    for (int i = 2; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--udp") {
            options.udp = true;
        } else if (name == "--new-connections") {
            options.new_connections = true;
        } else {
            const auto setter = setters().find(name);
            if (setter == setters().end()) throw Failure(kUsage, "unknown option " + name);
            if (++i == argc) throw Failure(kUsage, name + " requires a value");
            setter->second(options, argv[i]);
        }
    }
    if (options.address.empty() || options.port.empty()) throw Failure(kUsage, "--address and --port are required");
    if (options.udp && options.new_connections) throw Failure(kUsage, "--udp has no connections");
    if (options.udp && options.bytes > 65507) throw Failure(kUsage, "--bytes: a UDP datagram has at most 65507 bytes");
    if (options.client && options.time_s == 0) throw Failure(kUsage, "client requires --time S");
    return options;
}

}  // namespace k8sdds
