// A tool for the tests: records the integers from standard input in a histogram, prints its statistics as JSON, and
// writes its log to a file.
#include <cstdio>
#include <cstdlib>

#include "histogram_log.h"

constexpr double percents[] = {50, 90, 99, 99.9, 99.99, 99.9999, 100};

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: k8sdds-histogram-tool LOG < values\n");
        return 2;
    }
    k8sdds::Histogram histogram;
    long long value;
    while (std::scanf("%lld", &value) == 1) histogram.record(value);
    std::FILE* log = std::fopen(argv[1], "w");
    if (!log) return 1;
    std::fputs(k8sdds::histogram_log(histogram, "latency", 1700000000.5, 2.25).c_str(), log);
    std::fclose(log);
    std::printf("{\"count\":%llu,\"min\":%lld,\"max\":%lld,\"mean\":%.6f,\"stddev\":%.6f",
                static_cast<unsigned long long>(histogram.count()), static_cast<long long>(histogram.min()),
                static_cast<long long>(histogram.max()), histogram.mean(), histogram.stddev());
    for (double percent : percents) std::printf(",\"%g\":%lld", percent, static_cast<long long>(histogram.percentile(percent)));
    std::printf(",\"episodes\":{");
    for (double percent : percents)
        std::printf("%s\"%g\":%llu", percent == percents[0] ? "" : ",", percent,
                    static_cast<unsigned long long>(histogram.episodes(percent)));
    std::printf("}}\n");
    return 0;
}
