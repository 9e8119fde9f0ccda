#include "config.h"

#include <net/if.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "json.h"
#include "outage.h"

namespace k8sdds {

namespace {

// As in k8sdds/model/impairments.py, link_files.py and strict.py; tests compare them. Delays have twice as much room, because
// the jitter of some distributions is scaled.
constexpr double kMaxDelayUs = 2 * 60e6, kMaxTraceMs = 86.4e6;
constexpr double kMaxMbit = 400e3;
constexpr double kMaxQueuePackets = 1e6, kMaxQueueBytes = 1 << 30, kMaxQueueMs = 60e3;
constexpr std::size_t kMaxItems = 1'000'000, kMaxLinks = 256;
constexpr std::size_t kMaxFile = 256 << 20;

[[noreturn]] void refuse(const std::string& key, const std::string& why) { throw Failure(kUsage, key + ": " + why); }

std::string shown(double number) {
    char text[40];
    std::snprintf(text, sizeof text, "%.10g", number);
    return text;
}

double number_of(const std::string& key, const Json& value, double least, double most) {
    if (!value.is_number()) refuse(key, "must be a number");
    const double number = value.get<double>();
    if (!(number >= least && number <= most)) refuse(key, "must be from " + shown(least) + " to " + shown(most));
    return number;
}

// The members of one object. `end` refuses those that nothing has asked for.
class Fields {
public:
    Fields(std::string path, const Json& object) : path_(std::move(path)), object_(object) {
        if (!object.is_object()) refuse(path_.empty() ? "the document" : path_, "must be an object");
    }

    const Json* find(const char* name) {
        const auto found = object_.find(name);
        known_.insert(name);
        return found == object_.end() ? nullptr : &*found;
    }

    std::string key(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

    double number(const char* name, double least, double most, double otherwise) {
        const Json* value = find(name);
        return value ? number_of(key(name), *value, least, most) : otherwise;
    }

    std::int64_t integer(const char* name, double least, double most, std::int64_t otherwise) {
        const double value = number(name, least, most, static_cast<double>(otherwise));
        if (value != std::floor(value)) refuse(key(name), "must be an integer");
        return static_cast<std::int64_t>(value);
    }

    double percent(const char* name, double otherwise = 0) { return number(name, 0, 100, otherwise * 100) / 100; }

    std::string text(const char* name) {
        const Json* value = find(name);
        if (!value) return "";
        if (!value->is_string()) refuse(key(name), "must be a string");
        return value->get<std::string>();
    }

    bool flag(const char* name) {
        const Json* value = find(name);
        if (value && !value->is_boolean()) refuse(key(name), "must be true or false");
        return value && value->get<bool>();
    }

    template <typename Use>
    void each(const char* name, std::size_t most, Use use) {
        const Json* list = find(name);
        if (!list) return;
        if (!list->is_array()) refuse(key(name), "must be a list");
        if (list->size() > most) refuse(key(name), "has more than " + std::to_string(most) + " items");
        std::size_t index = 0;
        for (const Json& item : *list) use(key(name) + "[" + std::to_string(index++) + "]", item);
    }

    template <typename Use>
    void object(const char* name, Use use) {
        const Json* value = find(name);
        if (!value) return;
        Fields fields(key(name), *value);
        use(fields);
        fields.end();
    }

    void end() const {
        for (const auto& item : object_.items())
            if (known_.count(item.key()) == 0) refuse(key(json_text(item.key()).c_str()), "is not a known key");
    }

private:
    std::string path_;
    const Json& object_;
    std::set<std::string> known_;
};

Distribution distribution_of(Fields& fields) {
    const std::string name = fields.text("distribution");
    if (name.empty() || name == "normal") return Distribution::kNormal;
    if (name == "uniform") return Distribution::kUniform;
    if (name == "pareto") return Distribution::kPareto;
    refuse(fields.key("distribution"), "must be normal, uniform or pareto");
}

DelayConfig delay_of(Fields& fields) {
    DelayConfig delay;
    delay.mean_ns = fields.number("mean_us", 0, kMaxDelayUs, 0) * 1e3;
    delay.jitter_ns = fields.number("jitter_us", 0, kMaxDelayUs, 0) * 1e3;
    delay.distribution = distribution_of(fields);
    delay.correlation = fields.percent("correlation_percent");
    delay.reorder = fields.percent("reorder_percent");
    fields.each("values_us", kMaxItems, [&](const std::string& key, const Json& value) {
        delay.values_ns.push_back(std::llround(number_of(key, value, 0, kMaxDelayUs) * 1e3));
    });
    if (!delay.values_ns.empty() && (delay.mean_ns > 0 || delay.jitter_ns > 0 || delay.correlation > 0))
        refuse(fields.key("values_us"), "excludes mean_us, jitter_us and correlation_percent");
    if (delay.reorder > 0 && delay.mean_ns == 0 && delay.jitter_ns == 0 && delay.values_ns.empty())
        refuse(fields.key("reorder_percent"), "needs a delay: packets that are sent at once overtake delayed ones");
    return delay;
}

LossConfig loss_of(Fields& fields) {
    LossConfig loss;
    loss.independent = fields.percent("percent");
    loss.p = fields.percent("p_percent");
    // The defaults of tc: without r the states are independent, and every packet of the bad state is lost.
    loss.r = fields.percent("r_percent", 1 - loss.p);
    loss.h = fields.percent("h_percent");
    loss.k = fields.percent("k_percent", 1);
    loss.udp_only = fields.flag("udp_only");
    loss.pattern = fields.text("pattern");
    if (loss.pattern.size() > kMaxItems)
        refuse(fields.key("pattern"), "is longer than " + std::to_string(kMaxItems) + " characters");
    if (loss.pattern.find_first_not_of("01") != std::string::npos)
        refuse(fields.key("pattern"), "must consist of 0 (passes) and 1 (lost)");
    if ((loss.independent > 0) + (loss.p > 0) + !loss.pattern.empty() > 1)
        refuse(fields.key("pattern"), "excludes percent and p_percent, which exclude each other");
    if (loss.p > 0 && loss.r == 0) refuse(fields.key("r_percent"), "must be above 0: the bad state would never end");
    if (loss.p > 0 && loss.k == 0)
        refuse(fields.key("k_percent"), "must be above 0: it is the share of packets that pass in the good state");
    return loss;
}

RateConfig rate_of(Fields& fields) {
    RateConfig rate;
    rate.mbit = fields.number("mbit", 0, kMaxMbit, 0);
    fields.each("trace_ms", kMaxItems, [&](const std::string& key, const Json& value) {
        const double ms = number_of(key, value, 0, kMaxTraceMs);
        if (ms != std::floor(ms)) refuse(key, "must be an integer");
        const std::int64_t ns = static_cast<std::int64_t>(ms) * 1'000'000;
        if (!rate.trace_ns.empty() && ns < rate.trace_ns.back()) refuse(key, "is before the item in front of it");
        rate.trace_ns.push_back(ns);
    });
    if (!rate.trace_ns.empty() && rate.trace_ns.back() == 0)
        refuse(fields.key("trace_ms"), "must end after 0 ms: the trace is repeated with the length of its last item");
    if (!rate.trace_ns.empty() && rate.mbit > 0) refuse(fields.key("trace_ms"), "excludes mbit");
    return rate;
}

QueueConfig queue_of(Fields& fields) {
    QueueConfig queue;
    queue.packets = fields.integer("packets", 0, kMaxQueuePackets, 0);
    queue.bytes = fields.integer("bytes", 0, kMaxQueueBytes, 0);
    queue.ms = fields.number("ms", 0, kMaxQueueMs, 0);
    const std::string discipline = fields.text("discipline");
    if (!discipline.empty() && discipline != "drop-tail" && discipline != "codel")
        refuse(fields.key("discipline"), "must be drop-tail or codel");
    queue.codel = discipline == "codel";
    return queue;
}

void read_direction(Fields& fields, DirectionConfig& direction) {
    fields.object("delay", [&](Fields& inner) { direction.delay = delay_of(inner); });
    fields.object("loss", [&](Fields& inner) { direction.loss = loss_of(inner); });
    fields.object("rate", [&](Fields& inner) { direction.rate = rate_of(inner); });
    fields.object("queue", [&](Fields& inner) { direction.queue = queue_of(inner); });
    direction.duplicate = fields.percent("duplicate_percent");
    if (direction.queue.ms > 0 && direction.rate.mbit == 0 && direction.rate.trace_ns.empty())
        refuse(fields.key("queue.ms"), "needs a rate");
}

std::string interface_of(Fields& fields, const char* name) {
    const std::string text = fields.text(name);
    if (text.empty() || text.size() >= IFNAMSIZ || text.find('\0') != std::string::npos)
        refuse(fields.key(name), "must be the name of an interface");
    return text;
}

LinkConfig link_of(const std::string& path, const Json& value) {
    Fields fields(path, value);
    LinkConfig link;
    link.name = fields.text("name");
    // `outage NAME STATE` is one line of words.
    if (link.name.empty() || link.name.size() > 64 || link.name.find_first_of(std::string(" \t\r\n\0", 5)) != std::string::npos)
        refuse(fields.key("name"), "must be a word of at most 64 characters");
    link.near = interface_of(fields, "near");
    link.far = interface_of(fields, "far");
    if (link.near == link.far) refuse(fields.key("far"), "must not be the interface of near");
    fields.object("up", [&](Fields& inner) { read_direction(inner, link.up); });
    fields.object("down", [&](Fields& inner) { read_direction(inner, link.down); });
    fields.end();
    return link;
}

}  // namespace

Outage parse_outage(const std::string& words) {
    Outage outage;
    if (words == "off") return outage;
    const bool slows = words.rfind("rate ", 0) == 0;
    const std::string number = words.substr(slows ? 5 : 0);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || !(value > 0 && value <= (slows ? kMaxMbit : 100)))
        throw Failure(kUsage, "outage: 'off', a loss in percent, or 'rate' and Mbit/s are required");
    (slows ? outage.mbit : outage.share) = slows ? value : value / 100;
    return outage;
}

Config parse_config(const std::string& text) {
    const Json document = Json::parse(text, nullptr, false);
    if (document.is_discarded()) throw Failure(kUsage, "is not a JSON document");
    Config config;
    Fields fields("", document);
    // 2^53: every integer up to here is exact in a double.
    config.seed = static_cast<std::uint64_t>(fields.integer("seed", 0, 9007199254740992.0, 0));
    config.cpu = static_cast<int>(fields.integer("cpu", -1, 1023, -1));
    config.packets = static_cast<std::size_t>(fields.integer("packets", 1, 1 << 22, 65536));
    std::set<std::string> names, interfaces;
    fields.each("links", kMaxLinks, [&](const std::string& key, const Json& item) {
        config.links.push_back(link_of(key, item));
        const LinkConfig& link = config.links.back();
        if (!names.insert(link.name).second) refuse(key + ".name", "is the name of another link");
        if (!interfaces.insert(link.near).second || !interfaces.insert(link.far).second)
            refuse(key, "has an interface of another link");
    });
    if (config.links.empty()) refuse("links", "at least one link is required");
    fields.end();
    return config;
}

Config read_config(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Failure(kUsage, path + ": cannot read the file: " + errno_text());
    std::string text;
    char part[1 << 16];
    while (file.read(part, sizeof part) || file.gcount() > 0) {
        text.append(part, static_cast<std::size_t>(file.gcount()));
        if (text.size() > kMaxFile) throw Failure(kUsage, path + ": is larger than 256 MiB");
    }
    if (file.bad()) throw Failure(kUsage, path + ": cannot read the file: " + errno_text());
    try {
        return parse_config(text);
    } catch (const Failure& failure) {
        throw Failure(kUsage, path + ": " + failure.what());
    }
}

}  // namespace k8sdds
