// Sends announcements, and identifies the processes that send them.
#pragma once

#include <initializer_list>

#include "backend.h"

namespace k8sdds {

constexpr int64_t repeat_ns = 50'000'000;                  // period at which unanswered announcements are repeated

uint32_t random_number();                                  // never 0

// Sends the announcements of this process. Any thread may call send().
class Announcer {
public:
    Announcer(Backend& backend, const Settings& settings);
    void send(Kind kind, uint32_t run = 0, uint16_t to = to_all, std::initializer_list<int64_t> values = {});
    uint32_t instance() const { return instance_; }        // random number of this process

private:
    Backend& backend_;
    Role role_;
    uint16_t id_;
    uint64_t nonce_;
    uint32_t instance_;
};

// The process that uses an id. Instance numbers distinguish processes with the same id: a restarted process replaces
// its predecessor, while an instance that announces itself again after another one is a duplicate.
class Identity {
public:
    enum class Instance { known, first_seen, duplicate };
    Instance observe(uint32_t instance);
    void forget() { instance_ = previous_ = 0; }
    uint32_t instance() const { return instance_; }
    uint32_t previous() const { return previous_; }

private:
    uint32_t instance_ = 0, previous_ = 0;
};

}  // namespace k8sdds
