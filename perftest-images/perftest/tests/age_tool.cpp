// A tool for the tests: observes the age of samples that arrive as standard input lists, and prints what was seen as JSON.
// The first line is BEGIN END DEADLINE, each further one NOW DUE; all in ns.
#include <cstdio>

#include "age.h"

int main() {
    long long begin, end, deadline, now, due;
    if (std::scanf("%lld %lld %lld", &begin, &end, &deadline) != 3) {
        std::fprintf(stderr, "usage: k8sdds-age-tool < (BEGIN END DEADLINE, then NOW DUE on each line)\n");
        return 2;
    }
    k8sdds::Age age;
    age.observe(begin, end, deadline);
    while (std::scanf("%lld %lld", &now, &due) == 2) age.arrived(now, due);
    const auto seen = age.freshness();
    if (!seen) {
        std::printf("null\n");
        return 0;
    }
    std::printf("{\"blind\":%lld,\"gaps\":%llu,\"ages\":", static_cast<long long>(seen->blind),
                static_cast<unsigned long long>(seen->gaps));
    if (seen->ages)
        std::printf("{\"mean\":%.6f,\"p99\":%lld,\"max\":%lld}}\n", seen->ages->mean,
                    static_cast<long long>(seen->ages->p99), static_cast<long long>(seen->ages->max));
    else std::printf("null}\n");
    return 0;
}
