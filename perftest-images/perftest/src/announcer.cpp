#include "announcer.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

namespace k8sdds {

uint32_t random_number() {
    uint32_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
        timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        number = static_cast<uint32_t>(t.tv_nsec) * 2654435761u ^ static_cast<uint32_t>(getpid());
    }
    return number ? number : 1;
}

Announcer::Announcer(Backend& backend, const Settings& settings)
    : backend_(backend), role_(settings.role), id_(static_cast<uint16_t>(settings.id)), nonce_(settings.nonce),
      instance_(random_number()) {}

void Announcer::send(Kind kind, uint32_t run, uint16_t to, std::initializer_list<int64_t> values) {
    Announcement message;
    message.kind = kind;
    message.role = role_;
    message.id = id_;
    message.to = to;
    message.instance = instance_;
    message.run = run;
    message.nonce = nonce_;
    size_t i = 0;
    for (int64_t value : values) message.value[i++] = value;
    backend_.announce(message);                            // a lost announcement is repeated
}

Identity::Instance Identity::observe(uint32_t instance) {
    if (instance == instance_) return Instance::known;
    if (instance == previous_) return Instance::duplicate;
    previous_ = instance_;
    instance_ = instance;
    return Instance::first_seen;
}

}  // namespace k8sdds
