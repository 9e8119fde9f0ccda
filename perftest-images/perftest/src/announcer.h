// Sending announcements, and the record of one peer.
#pragma once

#include <initializer_list>

#include "backend.h"

namespace k8sdds {

constexpr int64_t repeat_ns = 50'000'000;                  // messages are repeated this often until answered

uint32_t random_number();                                  // never 0

class Announcer {
public:
    Announcer(Backend& backend, Role role, unsigned id);
    void send(Kind kind, uint32_t run = 0, uint16_t to = to_all, std::initializer_list<int64_t> values = {});
    uint32_t instance() const { return instance_; }

private:
    Backend& backend_;
    Role role_;
    uint16_t id_;
    uint32_t instance_;
};

// Who is behind an id. Two processes with the same id are told apart by their instance numbers: a
// restarted process replaces its predecessor; one that is heard again after another is a duplicate.
class Identity {
public:
    enum class Heard { known, fresh, duplicate };
    Heard hear(uint32_t instance);
    void forget() { instance_ = previous_ = 0; }
    uint32_t instance() const { return instance_; }

private:
    uint32_t instance_ = 0, previous_ = 0;
};

}  // namespace k8sdds
