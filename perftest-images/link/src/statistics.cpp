#include "statistics.h"

#include <algorithm>

#include "packets.h"

namespace k8sdds {

void Histogram::record(std::int64_t value) {
    value = std::clamp<std::int64_t>(value, 0, kHighest);
    ++counts_[Counted::index_of(value)];
    ++count_;
    sum_ += static_cast<double>(value);
    max_ = std::max(max_, value);
}

std::int64_t Histogram::percentile(double percent) const {
    const double rank = std::max(1.0, percent / 100 * static_cast<double>(count_));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        seen += counts_[i];
        if (static_cast<double>(seen) >= rank) return std::min(Counted::highest_of(i), max_);
    }
    return max_;
}

Json Histogram::used(double unit) const {
    Json list = Json::array();
    for (std::size_t i = 0; i < counts_.size(); ++i)
        if (counts_[i] > 0) list.push_back({static_cast<double>(std::min(Counted::highest_of(i), max_)) / unit, counts_[i]});
    return list;
}

namespace {

Json microseconds(const Histogram& histogram) {
    Json result = {{"count", histogram.count()},
                   {"mean", json_rounded(histogram.mean() / 1e3, 3)},
                   {"max", static_cast<double>(histogram.max()) / 1e3}};
    for (const auto& [name, percent] : {std::pair{"p50", 50.0}, {"p90", 90.0}, {"p99", 99.0}, {"p99_9", 99.9}})
        result[name] = static_cast<double>(histogram.percentile(percent)) / 1e3;
    result["buckets"] = histogram.used(1e3);
    return result;
}

}  // namespace

// There is room for all bins, so that adding one allocates nothing.
Statistics::Statistics(std::vector<Bin> bins) : bins_(std::move(bins)) {
    bins_.clear();
    bins_.reserve(kBins);
}

void Statistics::start(std::int64_t now) {
    const std::uint32_t run = run_ + 1;
    *this = Statistics(std::move(bins_));
    run_ = run;
    origin_ = last_done_ = now;
    counting_ = true;
}

Statistics::Bin& Statistics::bin(std::int64_t time) {
    const std::int64_t index = (time - origin_) / kBin;
    if (time < origin_ || index >= static_cast<std::int64_t>(kBins)) return beyond_;
    if (index >= static_cast<std::int64_t>(bins_.size())) bins_.resize(static_cast<std::size_t>(index) + 1);
    return bins_[static_cast<std::size_t>(index)];
}

void Statistics::arrived(std::int64_t now, std::uint32_t bytes, bool oversized) {
    if (!counting_) return;
    ++packets_in_;
    bytes_in_ += bytes;
    oversized_ += oversized;
    ++bin(now).packets_in;
}

void Statistics::outage(std::int64_t time) {
    if (!counting_) return;
    ++outage_;
    ++bin(time).outage;
}

void Statistics::queue_full(std::int64_t time) {
    if (!counting_) return;
    ++queue_;
    ++bin(time).queue;
}

void Statistics::loss(std::int64_t time, bool lost) {
    if (!counting_) return;
    ++decided_;
    if (lost) {
        ++lost_;
        ++bin(time).lost;
    }
    if (run_length_ > 0 && lost != losing_) {
        (losing_ ? bursts_ : gaps_).record(run_length_);
        run_length_ = 0;
    }
    losing_ = lost;
    ++run_length_;
}

void Statistics::departed(const Packet& packet, std::int64_t actual, bool limited) {
    ++packets_out_;
    bytes_out_ += packet.length;
    // RFC 4737: a packet is reordered if one that arrived later has departed before it.
    if (packet.number < latest_)
        ++reordered_;
    else
        latest_ = packet.number;
    const std::int64_t delay = actual - packet.arrived;
    delays_.record(delay);
    errors_.record(actual - packet.planned);
    if (limited) {
        // When the bottleneck really had sent the packet, and since when it was busy with it.
        const std::int64_t done = actual - (packet.planned - packet.finished);
        busy_ns_ += std::max<std::int64_t>(0, done - std::max(last_done_, packet.arrived));
        last_done_ = std::max(last_done_, done);
        busy_bytes_ += packet.length;
    }
    Bin& now = bin(actual);
    ++now.packets_out;
    now.bytes_out += packet.length;
    now.delays_ns += delay;
    now.max_delay_ns = std::max(now.max_delay_ns, delay);
}

Json Statistics::series() const {
    Json result = {{"bin_ms", kBin / 1'000'000}};
    const auto column = [&](const char* name, auto value) {
        Json& list = result[name] = Json::array();
        for (const Bin& bin : bins_) list.push_back(value(bin));
    };
    column("packets_in", [](const Bin& bin) { return bin.packets_in; });
    column("packets_out", [](const Bin& bin) { return bin.packets_out; });
    column("bytes_out", [](const Bin& bin) { return bin.bytes_out; });
    column("lost", [](const Bin& bin) { return bin.lost; });
    column("queue", [](const Bin& bin) { return bin.queue; });
    column("outage", [](const Bin& bin) { return bin.outage; });
    column("mean_delay_us", [](const Bin& bin) {
        return bin.packets_out == 0 ? Json(nullptr)
                                    : json_rounded(static_cast<double>(bin.delays_ns) / 1e3 / bin.packets_out, 3);
    });
    column("max_delay_us", [](const Bin& bin) {
        return bin.packets_out == 0 ? Json(nullptr) : Json(static_cast<double>(bin.max_delay_ns) / 1e3);
    });
    return result;
}

Json Statistics::json() const {
    const std::uint64_t gone = packets_out_ + lost_ + queue_ + outage_ + overflow_ + unsent_;
    Json result = {{"packets_in", packets_in_}, {"bytes_in", bytes_in_}, {"packets_out", packets_out_}, {"bytes_out", bytes_out_}};
    result["dropped"] = {{"loss", lost_},         {"queue", queue_},   {"outage", outage_},
                         {"overflow", overflow_}, {"unsent", unsent_}, {"missed", missed_}};
    result["duplicated"] = duplicated_;
    result["reordered"] = reordered_;
    result["oversized"] = oversized_;
    result["in_flight"] = packets_in_ + duplicated_ - gone;
    result["loss_decisions"] = decided_;
    result["loss_bursts"] = bursts_.used(1);
    result["loss_gaps"] = gaps_.used(1);
    result["delay_us"] = microseconds(delays_);
    result["error_us"] = microseconds(errors_);
    result["rate"] = nullptr;
    if (busy_ns_ > 0)
        result["rate"] = {{"bytes", busy_bytes_},
                          {"busy_us", static_cast<double>(busy_ns_) / 1e3},
                          {"mbit", json_rounded(static_cast<double>(busy_bytes_) * 8e3 / static_cast<double>(busy_ns_), 6)}};
    result["series"] = series();
    return result;
}

}  // namespace k8sdds
