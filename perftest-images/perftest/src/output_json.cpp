// One JSON document: PerfTest's keys in "perftest", everything we know in "k8sdds".
#include <cstdio>

#include "json.h"
#include "output.h"

namespace k8sdds {
namespace {

double us(double ns) { return ns / 1e3; }

std::string join(const std::vector<std::string>& items) {
    std::string all;
    for (const std::string& item : items) all += (all.empty() ? "" : ",") + item;
    return "[" + all + "]";
}

std::string latency(const Histogram& h) {
    if (!h.count()) return "null";
    return JsonObject()
        .integer("count", static_cast<int64_t>(h.count()))
        .real("mean", h.mean(), 1)
        .real("stddev", h.stddev(), 1)
        .integer("min", h.min())
        .integer("p50", h.percentile(50))
        .integer("p90", h.percentile(90))
        .integer("p99", h.percentile(99))
        .integer("p9999", h.percentile(99.99))
        .integer("p999999", h.percentile(99.9999))
        .integer("max", h.max())
        .str();
}

std::string int_or_null(int64_t value) { return value ? std::to_string(value) : "null"; }

class JsonOutput final : public Output {
public:
    explicit JsonOutput(const Options& options) : options_(options) {}

    void interval(const Interval& i) override {
        if (options_.no_intervals) return;
        JsonObject row;
        if (options_.pub)
            row.real("latency", us(i.latency), 3).real("latency_ave", us(i.latency_mean), 3)
                .real("latency_std", us(i.latency_std), 3).real("latency_min", us(i.latency_min), 3)
                .real("latency_max", us(i.latency_max), 3);
        else
            row.integer("packets", static_cast<int64_t>(i.samples)).real("packets/s", i.rate, 1)
                .real("packets/s_ave", i.average_rate, 1).real("mbps", mbps(i.rate, i.length), 3)
                .real("mbps_ave", mbps(i.average_rate, i.length), 3).integer("lost", static_cast<int64_t>(i.lost))
                .real("lost_percent", percent(i.lost, i.samples + i.lost), 4);
        if (options_.cpu) row.real("CPU", i.cpu_percent, 2);
        intervals_.push_back(row.str());
    }

    void summary(const Report& report) override {
        const std::string perftest = JsonObject()
            .integer("length", static_cast<int64_t>(report.results.data_length))
            .raw("intervals", join(intervals_))
            .raw("summary", perftest_summary(report)).str();
        std::printf("%s\n", JsonObject().raw("perftest", "[" + perftest + "]").raw("k8sdds", own(report)).str().c_str());
        std::fflush(stdout);
    }

private:
    std::string perftest_summary(const Report& report) const {
        const Results& r = report.results;
        const Histogram& h = report.histogram;
        JsonObject s;
        if (options_.pub) {
            s.real("latency_ave", us(h.mean()), 3).real("latency_std", us(h.stddev()), 3).real("latency_min", us(h.min()), 3)
                .real("latency_max", us(h.max()), 3).real("latency_50", us(h.percentile(50)), 3)
                .real("latency_90", us(h.percentile(90)), 3).real("latency_99", us(h.percentile(99)), 3)
                .real("latency_99.99", us(h.percentile(99.99)), 3).real("latency_99.9999", us(h.percentile(99.9999)), 3);
        } else {
            const double rate = rate_of(report);
            s.integer("packets", static_cast<int64_t>(r.received)).real("packets/sAve", rate, 1)
                .real("mbpsAve", mbps(rate, r.data_length), 3).integer("lost", static_cast<int64_t>(r.lost))
                .real("lostPercent", percent(r.lost, r.received + r.lost), 4);
        }
        if (options_.cpu) s.real("CPU", percent_of_host(report.state.cpu_s(), report.state.measured_s()), 2);
        return s.str();
    }

    static std::string transport(const Report& report) {
        const TransportFacts& f = report.facts;
        return JsonObject()
            .text_or_null("interface", f.interface)
            .text_or_null("address", f.address)
            .raw("socket_receive_buffer_bytes", int_or_null(f.receive_buffer))
            .raw("socket_send_buffer_bytes", int_or_null(f.send_buffer))
            .raw("max_message_bytes", int_or_null(f.max_message))
            .raw("fragment_bytes", int_or_null(f.fragment))
            .flag("multicast", report.options.multicast)
            .text_or_null("multicast_address", f.multicast_address)
            .str();
    }

    static std::string qos(const Report& report) {
        JsonObject o;
        if (!report.settings) return "null";
        o.text("profile", report.settings->qos.name).text_or_null("file", report.settings->qos.file);
        for (const auto& [key, value] : report.effective_qos) o.raw(key, value);
        return o.str();
    }

    std::string subscribers(const Results& r) const {
        std::vector<std::string> all;
        for (const SubscriberReport& s : r.subscribers)
            all.push_back(JsonObject().integer("id", s.id).integer("received", static_cast<int64_t>(s.received))
                              .integer("duplicates", static_cast<int64_t>(s.duplicates))
                              .raw("first_ns", int_or_null(s.first_ns)).raw("last_ns", int_or_null(s.last_ns)).str());
        return join(all);
    }

    std::string own(const Report& report) const {
        const Results& r = report.results;
        const double rate = rate_of(report);
        const bool publisher_latency = options_.pub && r.latency_test, loaded = options_.pub && !r.latency_test;
        JsonObject options;
        for (const auto& [name, value] : resolved(options_)) options.raw(name, value);
        return JsonObject()
            .integer("schema", 1)
            .text("version", K8SDDS_VERSION)
            .text("role", options_.pub ? "publisher" : "subscriber")
            .integer("id", options_.pub ? options_.pid : options_.sid)
            .text("test", r.latency_test ? "latency" : "throughput")
            .raw("exit", JsonObject().integer("code", report.ending.code).text("reason", report.ending.reason).str())
            .raw("middleware", JsonObject().text("name", options_.middleware)
                                   .text("version", report.middleware_version).str())
            .raw("options", options.str())
            .raw("transport", transport(report))
            .raw("qos", qos(report))
            .raw("handshake_s", r.handshake_s > 0 ? json_number(r.handshake_s, 6) : "null")
            .real("discovery_s", r.discovery_s)
            .real("warmup_s", r.warm_up_s)
            .real("measured_s", report.state.measured_s(), 9)
            .raw("sent", r.sent_known ? std::to_string(r.sent) : "null")
            .integer("received", static_cast<int64_t>(r.received))
            .integer("warmup_received", static_cast<int64_t>(r.warm_up_received))
            .integer("duplicates", static_cast<int64_t>(r.duplicates))
            .integer("lost", static_cast<int64_t>(r.lost))
            .integer("out_of_order", static_cast<int64_t>(r.out_of_order))
            .real("samples_per_s", rate, 3)
            .real("throughput_mbps", mbps(rate, r.data_length))
            .raw("first_sample_monotonic_ns", int_or_null(r.first_ns))
            .raw("last_sample_monotonic_ns", int_or_null(r.last_ns))
            .raw("latency_ns", publisher_latency ? latency(report.histogram) : "null")
            .raw("loaded_latency_ns", loaded ? latency(report.histogram) : "null")
            .integer("pings_sent", static_cast<int64_t>(r.pings_sent))
            .integer("pongs_received", static_cast<int64_t>(r.pongs_received))
            .integer("pongs_timed_out", static_cast<int64_t>(r.pongs_timed_out))
            .raw("subscribers", subscribers(r))
            .real("cpu_s", report.state.cpu_s())
            .str();
    }

    const Options& options_;
    std::vector<std::string> intervals_;
};

}  // namespace

std::unique_ptr<Output> make_json_output(const Options& options) { return std::make_unique<JsonOutput>(options); }

}  // namespace k8sdds
