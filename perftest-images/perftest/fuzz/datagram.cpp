// Datagrams with samples for the raw backend. The input is a sequence of lengths (2 bytes) and datagrams.
#include <sys/socket.h>

#include <algorithm>

#include "../../fuzz/fuzz.h"
#include "raw_receiver.h"

namespace {

class Check final : public k8sdds::Events {
public:
    void on_announcement(const k8sdds::Announcement&) override {}
    void on_match() override {}
    void on_received() override {}
    void on_sample(const k8sdds::Sample& sample) override {
        // Every byte of the payload can be read.
        for (uint32_t i = 0; i < sample.payload_length; ++i) sum_ += sample.payload[i];
        k8sdds::fuzz::require(sample.payload_length <= k8sdds::max_datagram, "a sample is no longer than a datagram");
    }

private:
    unsigned sum_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace k8sdds;
    static int ends[2] = {-1, -1};
    static Check check;
    static RawReceiver receiver;
    if (ends[0] < 0) {
        fuzz::require(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0, "sockets can be created");
        Settings settings;
        settings.role = Role::subscriber;
        settings.raw_mode = RawMode::gso;                  // samples of several datagrams
        settings.publishers = 2;
        receiver.open(settings, check);
    }
    for (const uint8_t* end = data + size; end - data > 2;) {
        const size_t length = std::min<size_t>(static_cast<size_t>(data[0] | data[1] << 8), static_cast<size_t>(end - data - 2));
        if (send(ends[0], data + 2, length, MSG_DONTWAIT) == static_cast<ssize_t>(length)) receiver.receive(ends[1], MSG_DONTWAIT);
        data += 2 + length;
    }
    return 0;
}
