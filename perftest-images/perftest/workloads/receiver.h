// The thread that takes samples from the middleware in receive modes waitset and spin.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "backend.h"

namespace k8sdds {

class ReceiverThread {
public:
    ~ReceiverThread() { stop(); }

    // Does nothing in receive mode listener, where the middleware's own thread delivers samples.
    void start(Backend& backend, const std::string& mode) {
        if (mode == "listener") return;
        thread_ = std::thread([this, &backend, spins = mode == "spin"] {
            while (running_.load(std::memory_order_relaxed))
                if (spins || backend.wait(wait_ns)) backend.take();
        });
    }

    // Returns when no sample is being delivered any more.
    void stop() {
        running_.store(false);
        if (thread_.joinable()) thread_.join();
    }

private:
    static constexpr int64_t wait_ns = 50'000'000;         // bounds how long stop() waits
    std::thread thread_;
    std::atomic<bool> running_{true};
};

}  // namespace k8sdds
