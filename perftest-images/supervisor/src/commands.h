// The commands of the program. Each returns the exit code.
#pragma once

#include "options.h"

namespace k8sdds {

int pause_pod(const Options& options);
int run_participant(const Options& options);
int exec_participant(const Options& options);   // the command `attend`
int fetch_files(const Options& options);
int print_facts();
int print_processes();                        // the command `processes`
int record_stops(const Options& options);      // the command `stops`
int capture_packets(const Options& options);   // the command `capture`
int count_kinds(const Options& options);        // the command `count-kinds`
int answer_datagrams(const Options& options);  // the command `answer`
int ask_by_datagrams(const Options& options);  // the command `ask`

}  // namespace k8sdds
