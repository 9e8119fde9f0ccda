// Sends announcements, and identifies the processes that send them.
#pragma once

#include <initializer_list>

#include "backend.h"
#include "state.h"

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

// Repeats an announcement until the condition holds, which is evaluated under the state's mutex. Returns false if the run
// was stopped or the deadline has passed.
template <typename Send, typename Condition>
bool repeat(State& state, int64_t period_ns, int64_t deadline_ns, Send send, Condition condition) {
    std::unique_lock<std::mutex> lock(state.mutex);
    while (!condition()) {
        if (state.stopped.load() || now_ns() >= deadline_ns) return false;
        lock.unlock();
        send();
        lock.lock();
        state.wait(lock, std::min(now_ns() + period_ns, deadline_ns), condition);
    }
    return !state.stopped.load();
}

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
