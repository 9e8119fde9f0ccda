#include "packets.h"

#include <sys/mman.h>

#include "failure.h"

namespace k8sdds {

Pool::Pool(std::size_t packets, std::size_t room, std::size_t large, std::size_t large_room)
    : small_(packets), room_(room), large_room_(large_room), packets_(packets + large) {
    // The kernel provides a page of it when it is used for the first time.
    mapped_ = packets * room + large * large_room;
    if (mapped_ > 0) {
        void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw Failure(kSystem, "cannot reserve memory for packets: " + errno_text());
        memory_ = static_cast<std::uint8_t*>(memory);
    }
    for (std::size_t i = packets_.size(); i-- > 0;) give(static_cast<std::uint32_t>(i));
}

Pool::~Pool() {
    if (memory_ != nullptr) munmap(memory_, mapped_);
}

}  // namespace k8sdds
