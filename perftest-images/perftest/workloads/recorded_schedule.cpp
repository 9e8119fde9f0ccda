#include "recorded_schedule.h"

#include <algorithm>
#include <stdexcept>

#include "options.h"
#include "text_lines.h"
#include "user_file.h"

namespace k8sdds {

RecordedSchedule::RecordedSchedule(const std::string& text) {
    for_each_line(text, [this](const TextLine& line) {
        const int64_t value = line.words.size() == 2 ? whole_number(line.words[1]) : -1;
        if (period_ns_) {
            const int64_t due_us = whole_number(line.words[0]);
            if (due_us < 0 || value < 0) line.refuse(line.quoted() + " is not MICROSECONDS BYTES");
            return add(due_us, value, line);
        }
        if (line.words[0] != "period" || value < 1 || value > max_period_us)
            line.refuse(line.quoted() + " is not 'period MICROSECONDS', with 1 to " + std::to_string(max_period_us) +
                        " microseconds after which the samples repeat");
        period_ns_ = value * 1000;
    });
    if (items_.empty()) throw std::invalid_argument("has no samples; give a line of MICROSECONDS BYTES for each");
    if (rate() < lowest_rate || rate() > highest_rate)
        throw std::invalid_argument("has " + std::to_string(rate()) + " samples per second; give 0.001 to 10000000");
}

void RecordedSchedule::add(int64_t due_us, int64_t length, const TextLine& line) {
    if (items_.size() == max_samples) line.refuse("more than " + std::to_string(max_samples) + " samples; give fewer");
    if (!is_data_length(length))
        line.refuse(std::to_string(length) + " is not a length; give " + std::to_string(sample_overhead) + " to " +
                    std::to_string(max_data_length) + " bytes");
    const int64_t due_ns = due_us * 1000;
    if (items_.empty() && due_ns != 0) line.refuse("the first sample is due at 0");
    if (due_ns >= period_ns_) line.refuse(std::to_string(due_us) + " is not before the end of the period");
    if (!items_.empty() && due_ns < items_.back().due_ns)
        line.refuse(std::to_string(due_us) + " is before the previous time");
    items_.push_back({due_ns, static_cast<uint32_t>(length)});
    shortest_ = std::min(shortest_, items_.back().length);
    longest_ = std::max(longest_, items_.back().length);
}

std::shared_ptr<const RecordedSchedule> read_schedule(const std::string& path) {
    std::string text;
    if (const std::string unreadable = read_text(path, text, RecordedSchedule::max_bytes); !unreadable.empty())
        throw std::invalid_argument(unreadable);
    return std::make_shared<RecordedSchedule>(text);
}

}  // namespace k8sdds
