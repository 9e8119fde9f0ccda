// Reads the users' text files of one statement per line, whose words are separated by blanks. Comments begin with #.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace k8sdds {

// A line with at least one word.
struct TextLine {
    size_t number;                            // from 1
    std::string text;
    std::vector<std::string> words;

    // Throws std::invalid_argument with the number of the line, for the message to the user.
    [[noreturn]] void refuse(const std::string& problem) const {
        throw std::invalid_argument("line " + std::to_string(number) + ": " + problem);
    }
    // Returns the line, shortened, in quotes.
    std::string quoted() const;
};

// Returns the words of a line without its comment. Spaces and tabs separate them.
std::vector<std::string> words_of(const std::string& line);

// Calls a function for each line that has words, until it throws.
template <typename Read>
void for_each_line(const std::string& text, Read read) {
    size_t number = 0;
    for (size_t from = 0; from < text.size();) {
        const size_t to = std::min(text.find('\n', from), text.size());
        TextLine line{++number, text.substr(from, to - from), {}};
        from = to + 1;
        line.words = words_of(line.text);
        if (!line.words.empty()) read(line);
    }
}

// Returns the number of a word of at most 12 digits; -1 if it is not one.
int64_t whole_number(const std::string& word);

// Returns the number of a word of digits and at most one point; nothing if it is not one.
std::optional<double> decimal_number(const std::string& word);

uint64_t hash_of(const std::string& text);                 // FNV-1a

}  // namespace k8sdds
