#include "text_lines.h"

#include <algorithm>
#include <cstdlib>

#include "state.h"

namespace k8sdds {

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

std::string TextLine::quoted() const {
    constexpr size_t max_shown = 40;                       // bytes
    return "'" + one_line(text, max_shown) + "'";
}

int64_t whole_number(const std::string& word) {
    const bool digits = !word.empty() && word.size() <= 12 && word.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::stoll(word) : -1;
}

std::optional<double> decimal_number(const std::string& word) {
    const bool digits = word.find_first_of("0123456789") != std::string::npos &&
                        word.find_first_not_of("0123456789.") == std::string::npos;
    if (!digits || std::count(word.begin(), word.end(), '.') > 1) return std::nullopt;
    return std::strtod(word.c_str(), nullptr);
}

uint64_t hash_of(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}

}  // namespace k8sdds
