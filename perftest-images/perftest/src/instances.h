// Counts the samples of each instance of a keyed topic that one publisher writes. Only the receiving thread calls
// record(); any thread may read the counters.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace k8sdds {

class Instances {
public:
    explicit Instances(size_t count) : samples_(count), next_(count) {}

    // Counts a new sample. DDS keeps the order of samples only within an instance.
    void record(uint32_t instance, uint32_t sequence) {
        constexpr auto relaxed = std::memory_order_relaxed;
        if (instance >= samples_.size()) return;
        const uint32_t samples = samples_[instance].load(relaxed);
        if (samples == 0) received_.store(received_.load(relaxed) + 1, relaxed);
        samples_[instance].store(samples + 1, relaxed);
        if (samples != 0 && static_cast<int32_t>(sequence - next_[instance]) < 0) {
            out_of_order_.store(out_of_order_.load(relaxed) + 1, relaxed);
        } else {
            next_[instance] = sequence + 1;
        }
    }

    uint64_t received() const { return received_.load(); }                    // instances with a sample
    uint64_t out_of_order() const { return out_of_order_.load(); }            // samples
    uint64_t fewest_samples() const { return *std::min_element(samples_.begin(), samples_.end()); }
    uint64_t most_samples() const { return *std::max_element(samples_.begin(), samples_.end()); }

private:
    std::vector<std::atomic<uint32_t>> samples_;
    std::vector<uint32_t> next_;                           // sequence after the last sample of each instance
    std::atomic<uint64_t> received_{0}, out_of_order_{0};
};

}  // namespace k8sdds
