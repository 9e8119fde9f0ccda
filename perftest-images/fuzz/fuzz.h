// What fuzz targets share.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace k8sdds::fuzz {

// Ends the run: the target has not done what it must.
inline void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "violated: %s\n", what);
    std::abort();
}

// Returns the arguments of a command line, one in each line of the input.
class Arguments {
public:
    Arguments(const uint8_t* data, size_t size) {
        std::string line;
        for (size_t i = 0; i < size; ++i) {
            if (data[i] == '\n') {
                lines_.push_back(line);
                line.clear();
            } else if (data[i]) {
                line += static_cast<char>(data[i]);
            }
        }
        if (!line.empty()) lines_.push_back(line);
        lines_.insert(lines_.begin(), "program");
        for (std::string& argument : lines_) pointers_.push_back(argument.data());
        pointers_.push_back(nullptr);
    }
    int count() const { return static_cast<int>(lines_.size()); }
    char** values() { return pointers_.data(); }

private:
    std::vector<std::string> lines_;
    std::vector<char*> pointers_;
};

// Reads values from the input; zeros after its end.
class Input {
public:
    Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
    bool empty() const { return left_ == 0; }
    template <typename T>
    T next() {
        T value{};
        const size_t length = left_ < sizeof value ? left_ : sizeof value;
        std::memcpy(static_cast<void*>(&value), data_, length);
        data_ += length;
        left_ -= length;
        return value;
    }

private:
    const uint8_t* data_;
    size_t left_;
};

}  // namespace k8sdds::fuzz
