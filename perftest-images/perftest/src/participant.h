// What main() sees of the two roles.
#pragma once

#include "backend.h"
#include "results.h"

namespace k8sdds {

class Participant : public Events {
public:
    virtual ~Participant() = default;
    virtual void run() = 0;                   // from discovery to the orderly end, or until the state is stopped
    virtual Results results() const = 0;      // at any time, as far as they are known
    virtual void alive() = 0;                 // rarely, by the service thread
    virtual void check(int64_t now) = 0;
};

}  // namespace k8sdds
