// Receives raw datagrams, with the system calls of a RawMode, and passes their samples on.
#pragma once

#include <sys/socket.h>

#include <vector>

#include "raw_header.h"

namespace k8sdds {

// All memory is allocated by open(). receive() is called by one thread at a time.
class RawReceiver {
public:
    void open(const Settings&, Events&);

    // Receives what one system call returns, and returns its number of messages.
    unsigned receive(int fd, int flags);

private:
    // A sample whose datagrams are arriving. They arrive in order, or the sample is lost.
    struct Assembly {
        uint32_t run = 0, sequence = 0;
        uint8_t phase = 0, next_part = 0;
        size_t bytes = 0;
        std::vector<uint8_t> payload;
    };
    union Control {
        cmsghdr header;                       // for its alignment
        char bytes[CMSG_SPACE(sizeof(int))];
    };

    void deliver(const uint8_t* datagram, size_t length);
    const uint8_t* assemble(const Header&, const uint8_t* payload, size_t length);
    static size_t segment_of(msghdr&);        // length of the coalesced datagrams; 0: a single datagram

    Events* events_ = nullptr;
    bool gro_ = false;
    std::vector<uint8_t> buffers_;
    std::vector<iovec> pieces_;
    std::vector<Control> controls_;
    std::vector<mmsghdr> messages_;
    std::vector<Assembly> assemblies_;        // by publisher
};

}  // namespace k8sdds
