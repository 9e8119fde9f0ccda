// k8sdds-transactions: the programs of the tests tcp-rr, udp-rr and tcp-crr.

#include <cstdio>
#include <exception>

#include "roles.h"

int main(int argc, char** argv) {
    using namespace k8sdds;
    try {
        const Options options = parse_options(argc, argv);
        if (!options.client) serve(options);
        return request(options);
    } catch (const Failure& failure) {
        std::fprintf(stderr, "k8sdds-transactions: %s\n", failure.what());
        return failure.exit_code;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "k8sdds-transactions: %s\n", error.what());
        return kSystem;
    }
}
