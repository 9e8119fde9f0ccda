// The main program: dispatches the commands.

#include <cstdio>
#include <exception>

#include "commands.h"
#include "support.h"
#include "options.h"

int main(int argc, char** argv) {
    using namespace k8sdds;
    try {
        const Options options = parse_options(argc, argv);
        if (options.command == "help") {
            std::fputs(help_text().c_str(), stdout);
            return 0;
        }
        if (options.command == "version") {
            std::puts("k8sdds-supervisor " K8SDDS_VERSION);
            return 0;
        }
        if (options.command == "pause") return pause_pod(options);
        if (options.command == "attend") return exec_participant(options);
        if (options.command == "fetch") return fetch_files(options);
        if (options.command == "facts") return print_facts();
        if (options.command == "processes") return print_processes();
        if (options.command == "stops") return record_stops(options);
        if (options.command == "capture") return capture_packets(options);
        if (options.command == "count-kinds") return count_kinds(options);
        if (options.command == "answer") return answer_datagrams(options);
        if (options.command == "ask") return ask_by_datagrams(options);
        return run_participant(options);
    } catch (const Failure& failure) {
        std::fprintf(stderr, "k8sdds-supervisor: %s\n", failure.what());
        return failure.exit_code;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "k8sdds-supervisor: %s\n", error.what());
        return kPrerequisite;
    }
}
