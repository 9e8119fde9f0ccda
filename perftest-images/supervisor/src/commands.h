// The two commands. Each returns the exit code of the program.
#pragma once

#include "options.h"

namespace k8sdds {

int pause_pod(const Options& options);
int run_participant(const Options& options);

}  // namespace k8sdds
