#include "recorded_schedule.h"

#include <algorithm>
#include <stdexcept>

#include "options.h"
#include "state.h"
#include "user_file.h"

namespace k8sdds {
namespace {

constexpr double lowest_rate = 0.001, highest_rate = 1e7;  // as of -pubRate
constexpr size_t max_shown = 40;                           // bytes of a wrong line

[[noreturn]] void refuse(size_t line, const std::string& problem) {
    throw std::invalid_argument("line " + std::to_string(line) + ": " + problem);
}

// Returns the words of a line without its comment. Spaces and tabs separate them.
std::vector<std::string> words_of(const std::string& text) {
    constexpr const char* blanks = " \t\r";
    const std::string line = text.substr(0, text.find('#'));
    std::vector<std::string> words;
    for (size_t from = line.find_first_not_of(blanks); from != std::string::npos;) {
        const size_t to = std::min(line.find_first_of(blanks, from), line.size());
        words.push_back(line.substr(from, to - from));
        from = line.find_first_not_of(blanks, to);
    }
    return words;
}

// Returns the number of a word of at most 12 digits; -1: it is not one.
int64_t number_of(const std::string& word) {
    const bool digits = !word.empty() && word.size() <= 12 && word.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::stoll(word) : -1;
}

}  // namespace

RecordedSchedule::RecordedSchedule(const std::string& text) {
    size_t number = 0;
    for (size_t from = 0; from < text.size();) {
        const size_t to = std::min(text.find('\n', from), text.size());
        const std::string line = text.substr(from, to - from);
        from = to + 1;
        ++number;
        const std::vector<std::string> words = words_of(line);
        if (words.empty()) continue;
        const int64_t value = words.size() == 2 ? number_of(words[1]) : -1;
        if (period_ns_) {
            const int64_t due_us = number_of(words[0]);
            if (due_us < 0 || value < 0) refuse(number, "'" + one_line(line, max_shown) + "' is not MICROSECONDS BYTES");
            add(due_us, value, number);
            continue;
        }
        if (words[0] != "period" || value < 1 || value > max_period_us)
            refuse(number, "'" + one_line(line, max_shown) + "' is not 'period MICROSECONDS', with 1 to " +
                               std::to_string(max_period_us) + " microseconds after which the samples repeat");
        period_ns_ = value * 1000;
    }
    if (items_.empty()) throw std::invalid_argument("has no samples; give a line of MICROSECONDS BYTES for each");
    if (rate() < lowest_rate || rate() > highest_rate)
        throw std::invalid_argument("has " + std::to_string(rate()) + " samples per second; give 0.001 to 10000000");
}

void RecordedSchedule::add(int64_t due_us, int64_t length, size_t line) {
    if (items_.size() == max_samples) refuse(line, "more than " + std::to_string(max_samples) + " samples; give fewer");
    if (!is_data_length(length))
        refuse(line, std::to_string(length) + " is not a length; give " + std::to_string(sample_overhead) + " to " +
                         std::to_string(max_data_length) + " bytes");
    const int64_t due_ns = due_us * 1000;
    if (items_.empty() && due_ns != 0) refuse(line, "the first sample is due at 0");
    if (due_ns >= period_ns_) refuse(line, std::to_string(due_us) + " is not before the end of the period");
    if (!items_.empty() && due_ns < items_.back().due_ns)
        refuse(line, std::to_string(due_us) + " is before the previous time");
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
