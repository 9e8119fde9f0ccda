#include "json_results.h"

#include <algorithm>

namespace k8sdds {
namespace {

Json percentile(const Histogram& h, double percent) {
    return h.knows(percent) ? Json(h.percentile(percent)) : Json(nullptr);
}

const char* clock_name(bool shared) { return shared ? "shared" : "separate"; }

Json publisher(const FlowResult& f) {
    return {{"flow", f.flow},
            {"role", "publisher"},
            {"sent", f.sent},
            {"sent_bytes", f.bytes},
            {"samples", f.schedule.samples},
            {"not_sent", f.schedule.samples - std::min(f.schedule.samples, f.sent)},
            {"late", f.schedule.late},
            {"max_lateness_ns", f.schedule.max_lateness_ns}};
}

Json subscriber(const FlowResult& f) {
    const std::optional<Freshness>& seen = f.arrivals.freshness;
    return {{"flow", f.flow},
            {"role", "subscriber"},
            {"publisher", f.publisher},
            {"sent", f.sent_known ? Json(f.sent) : Json(nullptr)},
            {"received", f.received},
            {"delivered_bytes", f.bytes},
            {"lost", f.lost},
            {"duplicates", f.duplicates},
            {"out_of_order", f.out_of_order},
            {"missed", f.arrivals.missed},
            {"deadline_ns", f.arrivals.deadline_ns},
            {"clock", clock_name(f.arrivals.shared_clock)},
            {"chain_clock", clock_name(f.shared_chain_clock)},
            {"clock_step_ns", f.arrivals.clock_step_ns},
            {"delay", latency_json(*f.delays)},
            {"chain", latency_json(*f.chain)},
            {"age", age_json(seen)},
            {"blind", seen ? Json(seen->blind) : Json(nullptr)},
            {"gaps", seen ? Json(seen->gaps) : Json(nullptr)}};
}

}  // namespace

Json latency_json(const Histogram& h) {
    if (!h.count()) return nullptr;
    const Json episodes = {{"p50", h.episodes(50)},     {"p90", h.episodes(90)},       {"p99", h.episodes(99)},
                           {"p999", h.episodes(99.9)},  {"p9999", h.episodes(99.99)},  {"p999999", h.episodes(99.9999)}};
    return {{"count", h.count()},
            {"mean", json_rounded(h.mean(), 1)},
            {"stddev", json_rounded(h.stddev(), 1)},
            {"min", h.min()},
            {"p50", percentile(h, 50)},
            {"p90", percentile(h, 90)},
            {"p99", percentile(h, 99)},
            {"p999", percentile(h, 99.9)},
            {"p9999", percentile(h, 99.99)},
            {"p999999", percentile(h, 99.9999)},
            {"max", h.max()},
            {"episodes", episodes}};
}

Json age_json(const std::optional<Freshness>& seen) {
    if (!seen || !seen->ages) return nullptr;
    return {{"mean", json_rounded(seen->ages->mean, 1)}, {"p99", seen->ages->p99}, {"max", seen->ages->max}};
}

Json flows_json(const std::vector<FlowResult>& flows) {
    if (flows.empty()) return nullptr;
    Json all = Json::array();
    for (const FlowResult& flow : flows) all.push_back(flow.publishes ? publisher(flow) : subscriber(flow));
    return all;
}

}  // namespace k8sdds
