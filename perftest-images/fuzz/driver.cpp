// Runs a fuzz target without libFuzzer: first with each file of its corpus, then with random variations of them. Input N
// follows from the seed and from N alone, so that a failure can be repeated with -only N.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr unsigned seconds_per_input = 10;
constexpr size_t longest_input = 100'000;

using Random = std::mt19937_64;

size_t below(Random& random, size_t limit) { return limit ? static_cast<size_t>(random() % limit) : 0; }

const std::vector<std::string> tokens = {
    "0", "1", "-1", "2147483648", "4294967296", "18446744073709551616", "1e308", ".", "\n", " ", ":", "<", ">", "</", "/>",
    "&amp;", "&#0;", "<!--", "-->", "<!DOCTYPE x [", "]>", "<![CDATA[", "]]>", "<?xml?>", "\"", "'", "=", "-", "--",
    std::string(1, '\0'), std::string(8, '\0'), std::string(8, '\xff'), "\x80", "\xc3\xbc", "\xe2\x82", "\xf0\x9f\x98\x80",
    std::string(4, '\x7f'), std::string("\0\0\0\x80", 4), std::string("\xff\xff\xff\x7f", 4), std::string(300, 'a')};

void vary(std::string& input, const std::vector<std::string>& corpus, Random& random) {
    const size_t at = below(random, input.size() + 1), length = below(random, input.size() - at + 1);
    switch (below(random, 8)) {
    case 0: if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(random, 8))); break;
    case 1: if (at < input.size()) input[at] = static_cast<char>(random()); break;
    case 2: input.insert(at, tokens[below(random, tokens.size())]); break;
    case 3: input.erase(at, std::min<size_t>(length, 1 + below(random, 16))); break;
    case 4: input.erase(at); break;
    case 5: input.insert(below(random, input.size() + 1), input.substr(at, length)); break;
    case 6: {
        const std::string& other = corpus[below(random, corpus.size())];
        const size_t from = below(random, other.size() + 1);
        input.replace(at, length, other, from, below(random, other.size() - from + 1));
        break;
    }
    default:
        for (size_t i = at; i < input.size() && i < at + 8; ++i) input[i] = static_cast<char>(random());
    }
    if (input.size() > longest_input) input.resize(longest_input);
}

std::vector<std::string> read_corpus(const std::string& folder) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> corpus;
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    if (corpus.empty()) corpus.emplace_back();
    return corpus;
}

std::string input_of(uint64_t number, const std::vector<std::string>& corpus, uint64_t seed) {
    if (number < corpus.size()) return corpus[number];
    Random random(seed * 1'000'003 + number);
    std::string input = corpus[below(random, corpus.size())];
    for (size_t i = 0, steps = 1 + below(random, 6); i < steps; ++i) vary(input, corpus, random);
    return input;
}

char failure[80];                                          // of the input that is running

void report(int number) {
    const ssize_t written = write(STDERR_FILENO, failure, std::strlen(failure));
    static_cast<void>(written);
    signal(number, SIG_DFL);
    raise(number);
}

}  // namespace

int main(int argc, char** argv) {
    uint64_t runs = 1000, seed = 1, only = UINT64_MAX;
    std::string folder;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        uint64_t* number = argument == "-runs" ? &runs : argument == "-seed" ? &seed : argument == "-only" ? &only : nullptr;
        if (number && i + 1 < argc) *number = std::strtoull(argv[++i], nullptr, 10);
        else folder = argument;
    }
    if (folder.empty()) {
        std::fprintf(stderr, "usage: %s [-runs N] [-seed S] [-only N] CORPUS\n", argv[0]);
        return 2;
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const rlimit memory{1u << 30, 1u << 30};
    setrlimit(RLIMIT_AS, &memory);
#endif
    for (const int fatal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) signal(fatal, report);
    const std::vector<std::string> corpus = read_corpus(folder);
    const uint64_t first = only == UINT64_MAX ? 0 : only, end = only == UINT64_MAX ? corpus.size() + runs : only + 1;
    for (uint64_t number = first; number < end; ++number) {
        std::snprintf(failure, sizeof failure, "failed: input %llu of seed %llu\n",
                      static_cast<unsigned long long>(number), static_cast<unsigned long long>(seed));
        const std::string input = input_of(number, corpus, seed);
        alarm(seconds_per_input);
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    }
    alarm(0);                                              // the search for leaks at the end takes longer on a busy machine
    std::printf("%llu inputs\n", static_cast<unsigned long long>(end - first));
    return 0;
}
