// The two roles of the program.
#pragma once

#include "options.h"

namespace k8sdds {

[[noreturn]] void serve(const Options& options);  // until a signal ends the process
int request(const Options& options);              // prints the result as JSON

}  // namespace k8sdds
