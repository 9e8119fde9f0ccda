#include "options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <variant>

#include "json.h"
#include "usage.h"

namespace k8sdds {
namespace {

enum class For { both, publisher, subscriber };
using Flag = bool Options::*;
using Integer = int64_t Options::*;
using Real = double Options::*;
using Text = std::string Options::*;
using List = std::vector<std::string> Options::*;

struct Option {
    const char* name;
    For role;
    std::variant<Flag, Integer, Real, Text, List> target;
    double low, high;                          // of numbers
    const char* value;                         // placeholder in the help; for texts with '|' the choices
    const char* help;
};

constexpr double billion = 1e9;
constexpr double seconds_max = 86400 * 365.0;

const Option table[] = {
    {"-pub", For::both, &Options::pub, 0, 0, "", "Publish."},
    {"-sub", For::both, &Options::sub, 0, 0, "", "Subscribe."},
    {"-middleware", For::both, &Options::middleware, 0, 0, "NAME", "Middleware: the backend module to load."},
    {"-dataLen", For::both, &Options::data_length, sample_overhead, 1073741824, "BYTES",
     "Length of a sample, its 28 bytes of overhead included. A subscriber takes the publisher's if not given."},
    {"-latencyTest", For::publisher, &Options::latency_test, 0, 0, "",
     "Latency test: one sample at a time, each answered."},
    {"-executionTime", For::publisher, &Options::execution_time, 0, seconds_max, "S",
     "Measured time, after the warm-up (0: until -numIter)."},
    {"-numIter", For::publisher, &Options::iterations, 0, 4294967295.0, "N",
     "Measured samples (0: 100000000, in a latency test 10000000)."},
    {"-warmUp", For::publisher, &Options::warm_up, 0, seconds_max, "S", "Time before the measured interval."},
    {"-latencyCount", For::publisher, &Options::latency_count, 1, 4294967295.0, "N",
     "Throughput test: the latency of each N-th sample is measured."},
    {"-pubRate", For::publisher, &Options::pub_rate, 0, 0, "N:METHOD",
     "Samples per second; METHOD is spin or sleep. Unlimited if not given."},
    {"-batchSize", For::publisher, &Options::batch_size, 0, billion, "BYTES",
     "Bytes that are collected before they are sent (0: no batching; off where dataLen exceeds half of it)."},
    {"-sendQueueSize", For::publisher, &Options::send_queue, 0, billion, "N",
     "Samples that a reliable writer keeps unacknowledged before it blocks (0: the middleware's default)."},
    {"-bestEffort", For::both, &Options::best_effort, 0, 0, "", "Best effort instead of strict reliability."},
    {"-qosFile", For::both, &Options::qos_file, 0, 0, "FILE", "QoS profile (DDS-XML) of the data topics."},
    {"-domain", For::both, &Options::domain, 0, 230, "ID", "DDS domain."},
    {"-transport", For::both, &Options::transport, 0, 0, "UDPv4", "Transport; there is only this one."},
    {"-nic", For::both, &Options::nic, 0, 0, "NAME", "Network interface (name or address)."},
    {"-peer", For::both, &Options::peers, 0, 0, "ADDR", "Where to look for the others; repeatable."},
    {"-discovery", For::both, &Options::discovery, 0, 0, "multicast|peers|server",
     "How the others are found (multicast with -multicast, else peers)."},
    {"-discoveryServer", For::both, &Options::discovery_servers, 0, 0, "ADDR[:PORT]",
     "Fast DDS discovery server (port 11811 unless given); repeatable, the n-th has the id n-1."},
    {"-multicast", For::both, &Options::multicast, 0, 0, "", "Send samples by multicast, discover by multicast."},
    {"-multicastAddr", For::both, &Options::multicast_address, 0, 0, "ADDR", "Multicast address; needs -multicast."},
    {"-receive", For::both, &Options::receive, 0, 0, "listener|waitset|spin", "How samples are received."},
    {"-numSubscribers", For::publisher, &Options::subscribers, 1, 1000, "N", "Subscribers to wait for."},
    {"-numPublishers", For::subscriber, &Options::publishers, 1, 1000, "N", "Publishers to wait for."},
    {"-sidMultiSubTest", For::subscriber, &Options::sid, 0, 999, "ID", "This subscriber's id, from 0, distinct."},
    {"-pidMultiPubTest", For::publisher, &Options::pid, 0, 999, "ID", "This publisher's id, from 0, distinct."},
    {"-secureGovernanceFile", For::both, &Options::secure_governance, 0, 0, "FILE",
     "DDS Security: signed governance; the other files are needed with it."},
    {"-securePermissionsFile", For::both, &Options::secure_permissions, 0, 0, "FILE", "Signed permissions."},
    {"-secureCertAuthority", For::both, &Options::secure_authority, 0, 0, "FILE", "Certificate of the identity CA."},
    {"-securePermissionsAuthority", For::both, &Options::secure_permissions_authority, 0, 0, "FILE",
     "Certificate of the permissions CA (the identity CA's if not given)."},
    {"-secureCertFile", For::both, &Options::secure_certificate, 0, 0, "FILE", "This participant's certificate."},
    {"-securePrivateKey", For::both, &Options::secure_key, 0, 0, "FILE", "This participant's private key."},
    {"-secureEncryptionAlgorithm", For::both, &Options::secure_algorithm, 0, 0, "aes-128-gcm|aes-256-gcm",
     "Algorithm that signs and encrypts."},
    {"-discoveryTimeout", For::both, &Options::discovery_timeout, 0.1, seconds_max, "S",
     "How long to wait for the others."},
    {"-peerTimeout", For::both, &Options::peer_timeout, 0.1, seconds_max, "S",
     "Silence or standstill after which a peer counts as lost."},
    {"-noPrintIntervals", For::both, &Options::no_intervals, 0, 0, "", "Print the summary only."},
    {"-cpu", For::both, &Options::cpu, 0, 0, "", "Print the CPU use, in percent of the whole host."},
    {"-outputFormat", For::both, &Options::output_format, 0, 0, "csv|json", "Format of the standard output."},
    {"-histogramFile", For::publisher, &Options::histogram_file, 0, 0, "FILE",
     "Write the latencies as HdrHistogram log (V2)."},
    {"-timelineFile", For::both, &Options::timeline_file, 0, 0, "FILE",
     "Write elapsed_ms,samples,bytes for each 100 ms as CSV."},
    {"-verbosity", For::both, &Options::verbosity, 0, 3, "0-3", "How much is told on the standard error."},
    {"-check", For::both, &Options::check, 0, 0, "", "Check options and files, then end; nothing is started."},
    {"-help", For::both, &Options::help, 0, 0, "", "Print this."},
    {"-version", For::both, &Options::version, 0, 0, "", "Print the version."},
};

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

std::string number_text(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.10g", value);
    return text;
}

const Option* find(const std::string& name) {
    for (const Option& option : table)
        if (lower(option.name) == lower(name)) return &option;
    return nullptr;
}

// The known name that differs least, if that is little.
std::string nearest(const std::string& name) {
    std::string best;
    size_t least = 4;
    for (const Option& option : table) {
        const std::string a = lower(name), b = lower(option.name);
        std::vector<size_t> row(b.size() + 1);
        for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
        for (size_t i = 1; i <= a.size(); ++i) {
            size_t diagonal = row[0];
            row[0] = i;
            for (size_t j = 1; j <= b.size(); ++j) {
                const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
                diagonal = row[j];
                row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
            }
        }
        if (row.back() < least) { least = row.back(); best = option.name; }
    }
    return best;
}

double parse_number(const Option& option, const std::string& text, bool whole) {
    char* end = nullptr;
    errno = 0;
    const double value = std::strtod(text.c_str(), &end);
    const bool digits = text.find_first_not_of(whole ? "0123456789" : "0123456789.") == std::string::npos;
    if (text.empty() || !digits || *end || errno)
        throw UsageError(std::string(option.name) + ": '" + text + "' is not " +
                         (whole ? "a whole number" : "a number") + "; give a value from " +
                         number_text(option.low) + " to " + number_text(option.high));
    if (value < option.low || value > option.high)
        throw UsageError(std::string(option.name) + ": " + text + " is out of range; give a value from " +
                         number_text(option.low) + " to " + number_text(option.high));
    return value;
}

std::string parse_text(const Option& option, const std::string& text) {
    if (text.empty()) throw UsageError(std::string(option.name) + ": the value is empty; give " + option.value);
    std::string choices = option.value;
    if (choices.find('|') == std::string::npos && choices != "UDPv4") return text;
    for (size_t from = 0; from <= choices.size();) {
        const size_t to = std::min(choices.find('|', from), choices.size());
        const std::string choice = choices.substr(from, to - from);
        if (lower(text) == lower(choice)) return choice;
        from = to + 1;
    }
    throw UsageError(std::string(option.name) + ": '" + text + "' is not possible; give " + option.value);
}

void assign(Options& options, const Option& option, const std::string& text) {
    if (auto target = std::get_if<Integer>(&option.target))
        options.*(*target) = static_cast<int64_t>(parse_number(option, text, true));
    else if (auto target = std::get_if<Real>(&option.target))
        options.*(*target) = parse_number(option, text, false);
    else if (auto target = std::get_if<Text>(&option.target))
        options.*(*target) = parse_text(option, text);
    else if (auto target = std::get_if<List>(&option.target))
        (options.*(*target)).push_back(parse_text(option, text));
}

void check_roles(const Options& options) {
    if (options.pub == options.sub)
        throw UsageError(options.pub ? "-pub and -sub: a process does one of them; give one"
                                     : "-pub or -sub is missing; give one of them");
    for (const Option& option : table) {
        if (!options.was_given(option.name) || option.role == For::both) continue;
        if ((option.role == For::publisher) != options.pub)
            throw UsageError(std::string(option.name) + ": this is an option of the " +
                             (options.pub ? "subscriber" : "publisher") + "; leave it out");
    }
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const Option* option = find(name);
        if (!option) {
            const std::string near = nearest(name);
            throw UsageError(name + ": unknown option; " + (near.empty() ? "see -help" : "did you mean " + near + "?"));
        }
        const bool repeatable = std::holds_alternative<List>(option->target);
        if (!options.given.insert(option->name).second && !repeatable)
            throw UsageError(std::string(option->name) + ": given twice; give it once");
        if (auto flag = std::get_if<Flag>(&option->target)) {
            options.*(*flag) = true;
            continue;
        }
        if (i + 1 >= argc || (argv[i + 1][0] == '-' && argv[i + 1][1] != '\0'))
            throw UsageError(std::string(option->name) + ": the value is missing; give " + option->value);
        assign(options, *option, argv[++i]);
    }
    if (options.help || options.version) return options;
    check_roles(options);
    check_combinations(options);
    return options;
}

std::string help_text() {
    std::string text =
        "k8sdds-perftest: throughput and latency of publish/subscribe.\n\n"
        "  k8sdds-perftest -pub [options]\n  k8sdds-perftest -sub [options]\n\n"
        "Names are case-insensitive and given in full.\n";
    const std::pair<For, const char*> groups[] = {
        {For::both, "Both"}, {For::publisher, "Publisher"}, {For::subscriber, "Subscriber"}};
    const auto defaults = resolved(Options{});
    for (const auto& [role, title] : groups) {
        text += std::string("\n") + title + ":\n";
        for (const Option& option : table) {
            if (option.role != role) continue;
            std::string left = std::string("  ") + option.name + (*option.value ? " " : "") + option.value;
            if (left.size() < 34) left.resize(34, ' ');
            else left += "\n" + std::string(34, ' ');
            text += left + option.help;
            for (const auto& [name, value] : defaults)
                if (name == option.name + 1 && !std::holds_alternative<Flag>(option.target) && value != "null" &&
                    value != "[]")
                    text += " [" + value + "]";
            text += "\n";
        }
    }
    return text + "\nExit codes: 0 done, 2 usage, 3 nobody matched, 4 peer lost, 5 no samples, 6 middleware error,\n"
                  "130 and 143 after SIGINT and SIGTERM.\n";
}

std::vector<std::pair<std::string, std::string>> resolved(const Options& options) {
    std::vector<std::pair<std::string, std::string>> all;
    for (const Option& option : table) {
        std::string value;
        if (auto target = std::get_if<Flag>(&option.target)) value = options.*(*target) ? "true" : "false";
        else if (auto target = std::get_if<Integer>(&option.target)) value = std::to_string(options.*(*target));
        else if (auto target = std::get_if<Real>(&option.target)) value = number_text(options.*(*target));
        else if (auto target = std::get_if<Text>(&option.target))
            value = (options.*(*target)).empty() ? "null" : json_quote(options.*(*target));
        else if (auto target = std::get_if<List>(&option.target)) {
            value = "[";
            for (const std::string& item : options.*(*target)) value += (value == "[" ? "" : ",") + json_quote(item);
            value += "]";
        }
        if (std::string(option.name) != "-help" && std::string(option.name) != "-version" &&
            std::string(option.name) != "-check")
            all.emplace_back(option.name + 1, value);
    }
    return all;
}

}  // namespace k8sdds
