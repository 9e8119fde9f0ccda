// The JSON output: one document with PerfTest's keys in "perftest" and k8sdds's in "k8sdds" (docs/reference/perftest.md).
#include <algorithm>
#include <cstdio>

#include "clock.h"
#include "output.h"
#include "json_results.h"

namespace k8sdds {
namespace {

Json us(double ns) { return json_rounded(ns / 1e3, 3); }

const char* name_of(Test test) {
    switch (test) {
    case Test::latency: return "latency";
    case Test::paced: return "paced";
    case Test::graph: return "graph";
    case Test::discovery: return "discovery";
    case Test::throughput: break;
    }
    return "throughput";
}

Json schedule(const std::optional<Schedule>& schedule, uint64_t sent) {
    if (!schedule) return nullptr;
    return {{"samples", schedule->samples},
            {"not_sent", schedule->samples - std::min(schedule->samples, sent)},
            {"late", schedule->late},
            {"max_lateness_ns", schedule->max_lateness_ns}};
}

Json arrivals(const std::optional<Arrivals>& arrivals) {
    if (!arrivals) return nullptr;
    const std::optional<Freshness>& seen = arrivals->freshness;
    return {{"clock", arrivals->shared_clock ? "shared" : "separate"},
            {"clock_step_ns", arrivals->clock_step_ns},
            {"deadline_ns", arrivals->deadline_ns},
            {"missed", arrivals->missed},
            {"jitter_ns", json_rounded(arrivals->jitter_ns, 1)},
            {"age_ns", age_json(seen)},
            {"blind_ns", seen ? Json(seen->blind) : Json(nullptr)},
            {"gaps", seen ? Json(seen->gaps) : Json(nullptr)}};
}

Json common_interval(const std::optional<CommonInterval>& common) {
    if (!common) return nullptr;
    return {{"first_ns", common->first_ns}, {"last_ns", common->last_ns}, {"samples", common->samples}};
}

// What ended the measured interval of a publisher.
Json ended_by(const Report& report) {
    if (!report.options.pub || !report.state.end_ns.load()) return nullptr;
    return report.results.reached_limit ? "count" : "time";
}

Json instances(const std::optional<InstanceCounts>& counts) {
    if (!counts) return nullptr;
    return {{"received", counts->received},
            {"fewest_samples", counts->fewest_samples},
            {"most_samples", counts->most_samples}};
}

Json writers(const std::vector<WriterCounts>& counts) {
    if (counts.empty()) return nullptr;
    Json all = Json::array();
    for (const WriterCounts& w : counts)
        all.push_back({{"publisher", w.publisher},
                       {"writer", w.writer},
                       {"topic", w.topic},
                       {"received", w.received},
                       {"lost", w.lost},
                       {"duplicates", w.duplicates},
                       {"out_of_order", w.out_of_order}});
    return all;
}

Json sent_bytes(const Report& report) {
    const Results& r = report.results;
    if (report.options.sub || !r.lengths_vary) return nullptr;
    if (report.options.pub) return r.measured_bytes;
    uint64_t bytes = 0;                                    // of a node
    for (const FlowResult& flow : r.flows) bytes += flow.publishes ? flow.bytes : 0;
    return bytes;
}

Json null_if_zero(int64_t value) { return value ? Json(value) : Json(nullptr); }

class JsonOutput final : public Output {
public:
    explicit JsonOutput(const Options& options) : options_(options) {}

    void interval(const Interval& i) override {
        Json row;
        if (options_.pub)
            row = {{"latency", us(static_cast<double>(i.latency))},
                   {"latency_ave", us(i.latency_mean)},
                   {"latency_std", us(i.latency_std)},
                   {"latency_min", us(static_cast<double>(i.latency_min))},
                   {"latency_max", us(static_cast<double>(i.latency_max))}};
        else
            row = {{"packets", i.samples},
                   {"packets/s", json_rounded(i.rate, 1)},
                   {"packets/s_ave", json_rounded(i.average_rate, 1)},
                   {"mbps", json_rounded(i.mbps, 3)},
                   {"mbps_ave", json_rounded(i.average_mbps, 3)},
                   {"lost", i.lost},
                   {"lost_percent", json_rounded(percent(i.lost, i.samples + i.lost), 4)}};
        if (options_.cpu) row["CPU"] = json_rounded(i.cpu_percent, 2);
        intervals_.push_back(std::move(row));
    }

    void summary(const Report& report) override {
        const Json perftest = {{"length", report.results.data_length},
                               {"intervals", intervals_},
                               {"summary", perftest_summary(report)}};
        const Json document = {{"perftest", Json::array({perftest})}, {"k8sdds", k8sdds(report)}};
        std::printf("%s\n", json_text(document, -1, true).c_str());
        intervals_.clear();
        std::fflush(stdout);
    }

private:
    Json perftest_summary(const Report& report) const {
        const Results& r = report.results;
        const Histogram& h = report.histogram;
        const auto percentile = [&](double p) { return us(static_cast<double>(h.percentile(p))); };
        Json summary;
        if (options_.pub) {
            summary = {{"latency_ave", us(h.mean())},
                       {"latency_std", us(h.stddev())},
                       {"latency_min", us(static_cast<double>(h.min()))},
                       {"latency_max", us(static_cast<double>(h.max()))},
                       {"latency_50", percentile(50)},
                       {"latency_90", percentile(90)},
                       {"latency_99", percentile(99)},
                       {"latency_99.99", percentile(99.99)},
                       {"latency_99.9999", percentile(99.9999)}};
        } else {
            const double rate = rate_of(report);
            summary = {{"packets", r.received},
                       {"packets/sAve", json_rounded(rate, 1)},
                       {"mbpsAve", json_rounded(mbps(rate, length_of(report)), 3)},
                       {"lost", r.lost},
                       {"lostPercent", json_rounded(percent(r.lost, r.received + r.lost), 4)}};
        }
        if (options_.cpu)
            summary["CPU"] = json_rounded(percent_of_host(report.state.cpu_s(), report.state.measured_s()), 2);
        return summary;
    }

    static Json transport(const Report& report) {
        const TransportFacts& f = report.facts;
        return {{"interface", json_or_null(f.interface)},
                {"address", json_or_null(f.address)},
                {"socket_receive_buffer_bytes", null_if_zero(f.receive_buffer)},
                {"socket_send_buffer_bytes", null_if_zero(f.send_buffer)},
                {"max_message_bytes", null_if_zero(f.max_message)},
                {"fragment_bytes", null_if_zero(f.fragment)},
                {"multicast", report.options.multicast},
                {"multicast_address", json_or_null(f.multicast_address)},
                {"dscp", report.dscp}};
    }

    static Json qos(const Report& report) {
        if (!report.settings) return nullptr;
        Json qos = {{"profile", report.settings->qos.name}, {"file", json_or_null(report.settings->qos.file)}};
        for (const auto& [key, value] : report.effective_qos)
            std::visit([&, &name = key](const auto& v) { qos[name] = v; }, value);
        if (report.options.graph) qos["reliability"] = nullptr;        // of each flow
        return qos;
    }

    static Json subscribers(const Results& r) {
        Json all = Json::array();
        for (const SubscriberReport& s : r.subscribers)
            all.push_back({{"id", s.id},
                           {"received", s.received},
                           {"duplicates", s.duplicates},
                           {"first_ns", null_if_zero(s.first_ns)},
                           {"last_ns", null_if_zero(s.last_ns)},
                           {"instances", null_if_zero(static_cast<int64_t>(s.instances))}});
        return all;
    }

    Json k8sdds(const Report& report) const {
        const Results& r = report.results;
        const int64_t matched_at = r.handshake_s > 0 ? report.state.matched_ns.load() + realtime_offset_ns() : 0;
        const double rate = rate_of(report);
        const std::string measured = latency_name(report);
        const auto latencies = [&](const char* name) {
            return name == measured ? latency_json(report.histogram) : Json(nullptr);
        };
        return {{"schema", 1},
                {"version", K8SDDS_VERSION},
                {"role", options_.pub ? "publisher" : options_.sub ? "subscriber" : "node"},
                {"id", report.settings ? Json(report.settings->id) : Json(nullptr)},
                {"node", json_or_null(options_.node)},
                {"test", name_of(r.test)},
                {"exit", {{"code", report.exit_status.code}, {"reason", report.exit_status.reason}}},
                {"middleware", {{"name", options_.middleware}, {"version", report.middleware_version}}},
                {"options", resolved_options(options_)},
                {"transport", transport(report)},
                {"qos", qos(report)},
                {"handshake_s", r.handshake_s > 0 ? json_rounded(r.handshake_s, 6) : Json(nullptr)},
                {"matched_at_ns", null_if_zero(matched_at)},
                {"discovery_s", json_rounded(r.discovery_s, 6)},
                {"warmup_s", json_rounded(r.warm_up_s, 6)},
                {"measured_s", json_rounded(report.state.measured_s(), 9)},
                {"ended_by", ended_by(report)},
                {"sent", r.sent_known ? Json(r.sent) : Json(nullptr)},
                {"received", r.received},
                {"warmup_received", r.warm_up_received},
                {"sent_bytes", sent_bytes(report)},
                {"delivered_bytes", r.lengths_vary && !options_.pub ? Json(r.measured_bytes) : Json(nullptr)},
                {"warmup_delivered_bytes", r.lengths_vary && !options_.pub ? Json(r.warm_up_bytes) : Json(nullptr)},
                {"duplicates", r.duplicates},
                {"lost", r.lost},
                {"out_of_order", r.out_of_order},
                {"retransmitted_bytes", r.retransmitted_bytes ? Json(*r.retransmitted_bytes) : Json(nullptr)},
                {"foreign_samples", r.foreign_samples},
                {"foreign_messages", r.foreign_messages},
                {"samples_per_s", json_rounded(rate, 3)},
                {"throughput_mbps", json_rounded(mbps(rate, length_of(report)), 6)},
                {"first_sample_monotonic_ns", null_if_zero(r.first_ns)},
                {"last_sample_monotonic_ns", null_if_zero(r.last_ns)},
                {"common_interval", common_interval(r.common)},
                {"latency_ns", latencies("latency")},
                {"loaded_latency_ns", latencies("loaded_latency")},
                {"one_way_ns", latencies("one_way")},
                {"one_way_realtime_ns", latencies("one_way_realtime")},
                {"half_round_trip_ns", latencies("half_round_trip")},
                {"inter_arrival_ns", report.gaps ? latency_json(*report.gaps) : Json(nullptr)},
                {"schedule", schedule(r.schedule, r.sent)},
                {"arrivals", arrivals(r.arrivals)},
                {"instances", instances(r.instances)},
                {"writers", writers(r.writers)},
                {"pings_sent", r.pings_sent},
                {"pongs_received", r.pongs_received},
                {"pongs_timed_out", r.pongs_timed_out},
                {"subscribers", subscribers(r)},
                {"flows", flows_json(r.flows)},
                {"cpu_s", json_rounded(report.state.cpu_s(), 6)},
                {"pacer_spin_s", json_rounded(static_cast<double>(report.state.spin_ns.load()) / 1e9, 6)}};
    }

    const Options& options_;
    Json intervals_ = Json::array();          // written by the housekeeping thread until it is detached
};

}  // namespace

std::unique_ptr<Output> make_json_output(const Options& options) { return std::make_unique<JsonOutput>(options); }

}  // namespace k8sdds
