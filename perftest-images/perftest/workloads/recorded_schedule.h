// A recorded schedule: when each sample is due and how long it is, as a file states it. It repeats after its period.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace k8sdds {

struct TextLine;

class RecordedSchedule {
public:
    static constexpr size_t max_samples = 100'000, max_bytes = 4 << 20;    // of a file
    static constexpr int64_t max_period_us = 86'400'000'000;

    // Reads a text: lines of "MICROSECONDS BYTES" after one of "period MICROSECONDS", with comments from # to the end of
    // the line. Throws std::invalid_argument with the message for the user.
    explicit RecordedSchedule(const std::string& text);

    // Returns when a sample is due, in ns after the start. The first has the number 0.
    int64_t due_ns(uint64_t number) const {
        return static_cast<int64_t>(number / items_.size()) * period_ns_ + items_[number % items_.size()].due_ns;
    }
    // Returns the bytes of a sample, with its overhead.
    uint32_t length(uint64_t number) const { return items_[number % items_.size()].length; }

    // Returns the number of samples in a period.
    uint64_t samples() const { return items_.size(); }
    uint32_t shortest() const { return shortest_; }
    uint32_t longest() const { return longest_; }
    // Returns the mean number of samples per second.
    double rate() const { return static_cast<double>(items_.size()) * 1e9 / static_cast<double>(period_ns_); }

private:
    struct Item {
        int64_t due_ns;
        uint32_t length;
    };
    void add(int64_t due_us, int64_t length, const TextLine& line);

    std::vector<Item> items_;
    int64_t period_ns_ = 0;
    uint32_t shortest_ = UINT32_MAX, longest_ = 0;
};

// Reads a file. Throws std::invalid_argument with the message for the user.
std::shared_ptr<const RecordedSchedule> read_schedule(const std::string& path);

}  // namespace k8sdds
