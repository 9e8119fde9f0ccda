// The commands. Each returns the exit code of the program.
#pragma once

#include "options.h"

namespace k8sdds {

int pause_pod(const Options& options);
int run_participant(const Options& options);
int attend_participant(const Options& options);
int fetch_files(const Options& options);
int print_facts();

}  // namespace k8sdds
