// The client: keeps one request under way on each connection, and times each from the request to the end of its
// response. One clock reading per transaction: the end of one is the start of the next.

#include <netinet/in.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <vector>

#include "histogram_log.h"
#include "roles.h"
#include "sockets.h"

namespace k8sdds {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLostAfter = kSecond / 5;  // an unanswered datagram is lost, and the next request is sent
constexpr std::int64_t kSilence = 10 * kSecond;   // without any response, the server is lost
constexpr int kIdleMs = 50;

// Tells the supervisor when the measured interval begins (M) and ends (E).
void mark(char phase) {
    static const char* fd = std::getenv("K8SDDS_PHASE_FD");
    if (fd != nullptr && write(std::atoi(fd), &phase, 1) < 0) return;  // the supervisor has ended
}

class Client {
public:
    explicit Client(const Options& options)
        : options_(options), server_(resolve(options)), single_(options.connections == 1),
          buffer_(options.bytes + 1), slots_(static_cast<std::size_t>(options.connections)) {}

    int run() {
        std::int64_t now = now_ns();
        heard_ = now;
        for (std::uint32_t i = 0; i < slots_.size(); ++i) connect_slot(i, now);
        const std::int64_t measured_from = now + static_cast<std::int64_t>(options_.warmup_s * 1e9);
        run_until(measured_from);
        start_real_s_ = static_cast<double>(time(nullptr));
        mark('M');
        measured_ = true;
        const std::int64_t start = now_ns();
        run_until(start + static_cast<std::int64_t>(options_.time_s * 1e9));
        measured_ = false;
        seconds_ = static_cast<double>(now_ns() - start) / 1e9;
        mark('E');
        report();
        usleep(20'000);  // the supervisor reads the counters of this process
        return 0;
    }

private:
    enum class State { kConnecting, kRequesting, kClosing };
    struct Slot {
        int fd = -1;
        State state = State::kRequesting;
        std::int64_t began = 0;     // connect()
        std::int64_t sent = 0;
        std::size_t to_send = 0, received = 0;
        unsigned char sequence = 0;
        bool polls_writable = false;
    };

    void connect_slot(std::uint32_t index, std::int64_t now) {
        Slot& slot = slots_[index];
        // Long-lived connections are made one after the other; new ones for each request, at the same time.
        const bool blocking = single_ || !options_.new_connections;
        slot.fd = open_socket(server_, options_, blocking);
        slot.began = now;
        if (single_) {
            const timeval timeout{0, kIdleMs * 1000};
            setsockopt(slot.fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        }
        const bool connected = connect(slot.fd, server_.get(), server_.length) == 0;
        if (!connected && errno != EINPROGRESS)
            throw Failure(kConnection, "cannot connect to " + options_.address + ": " + errno_text());
        slot.polls_writable = !connected;
        if (!single_) poller_.add(slot.fd, index, slot.polls_writable);
        slot.state = State::kConnecting;
        if (connected) request_next(index, options_.new_connections ? now_ns() : now);
    }

    void request_next(std::uint32_t index, std::int64_t now) {
        Slot& slot = slots_[index];
        if (slot.state == State::kConnecting && options_.new_connections && measured_) connects_.record(now - slot.began);
        slot.state = State::kRequesting;
        slot.sent = now;
        slot.received = 0;
        slot.to_send = options_.bytes;
        ++slot.sequence;
        send_rest(index);
    }

    void send_rest(std::uint32_t index) {
        Slot& slot = slots_[index];
        buffer_[0] = static_cast<char>(slot.sequence);  // responses to other requests are in the buffer
        while (slot.to_send > 0) {
            const ssize_t n = send(slot.fd, buffer_.data(), slot.to_send, MSG_NOSIGNAL | (single_ ? 0 : MSG_DONTWAIT));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && errno == EAGAIN) return poll_for(slot, index, true);
            if (n < 0 && options_.udp && errno == ECONNREFUSED) continue;  // reported for an earlier datagram
            if (n < 0) throw Failure(kConnection, "cannot send a request: " + errno_text());
            slot.to_send -= static_cast<std::size_t>(n);
        }
        poll_for(slot, index, false);
    }

    void poll_for(Slot& slot, std::uint32_t index, bool writable) {
        if (single_ || slot.polls_writable == writable) return;
        poller_.change(slot.fd, index, writable);
        slot.polls_writable = writable;
    }

    void run_until(std::int64_t end) {
        std::array<epoll_event, 256> events;
        now_ = now_ns();
        while (now_ < end) {
            if (single_) {
                proceed(0);
            } else {
                const int ready = poller_.wait(events.data(), static_cast<int>(events.size()), kIdleMs);
                for (int i = 0; i < ready; ++i) proceed(events[static_cast<std::size_t>(i)].data.u32);
                if (ready == 0) now_ = now_ns();
            }
            if (now_ - checked_ > kLostAfter) check_silence();
        }
    }

    // Resends requests whose datagrams were lost; ends if nothing has arrived for long.
    void check_silence() {
        checked_ = now_;
        if (now_ - heard_ > kSilence) throw Failure(kConnection, "the server has not responded for 10 s");
        if (!options_.udp) return;
        for (std::uint32_t i = 0; i < slots_.size(); ++i)
            if (now_ - slots_[i].sent > kLostAfter) {
                lost_ += measured_;
                request_next(i, now_);
            }
    }

    void proceed(std::uint32_t index) {
        Slot& slot = slots_[index];
        if (slot.state == State::kConnecting) {
            int error = 0;
            socklen_t length = sizeof error;
            getsockopt(slot.fd, SOL_SOCKET, SO_ERROR, &error, &length);
            errno = error;
            if (error) throw Failure(kConnection, "cannot connect to " + options_.address + ": " + errno_text());
            return request_next(index, now_ = now_ns());
        }
        if (slot.to_send > 0) return send_rest(index);
        const ssize_t n = recv(slot.fd, buffer_.data(), options_.udp ? buffer_.size() : options_.bytes - slot.received,
                               single_ ? 0 : MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN || (options_.udp && errno == ECONNREFUSED))) {
            now_ = now_ns();
            return;
        }
        if (n < 0) throw Failure(kConnection, "cannot receive a response: " + errno_text());
        if (slot.state == State::kClosing) return reconnect(index, n);
        if (n == 0 && !options_.udp) throw Failure(kConnection, "the server closed a connection");
        if (options_.udp) {
            const bool expected = n == static_cast<ssize_t>(options_.bytes) &&
                                  static_cast<unsigned char>(buffer_[0]) == slot.sequence;
            if (!expected) return;  // a late response to a request that counts as lost
        } else {
            slot.received += static_cast<std::size_t>(n);
            if (slot.received < options_.bytes) return;
        }
        now_ = heard_ = now_ns();
        if (measured_)
            round_trips_.record(now_ - slot.sent);
        else
            ++warmup_;
        if (!options_.new_connections) return request_next(index, now_);
        slot.state = State::kClosing;
        slot.received = 0;
    }

    // The server closes first. Its end of the stream has arrived.
    void reconnect(std::uint32_t index, ssize_t n) {
        if (n != 0) throw Failure(kConnection, "the response is longer than requested");
        close(slots_[index].fd);
        connect_slot(index, now_ = now_ns());
    }

    void report() {
        std::printf("{\"transactions\": %llu, \"warmup_transactions\": %llu, \"seconds\": %.9f, \"lost\": %llu, "
                    "\"connections\": %d}\n",
                    static_cast<unsigned long long>(round_trips_.count()), static_cast<unsigned long long>(warmup_),
                    seconds_, static_cast<unsigned long long>(lost_), options_.connections);
        std::fflush(stdout);
        if (options_.histogram_file.empty()) return;
        std::ofstream file(options_.histogram_file);
        file << histogram_log(round_trips_, "round_trip", start_real_s_, seconds_);
        if (options_.new_connections) {
            // One log has one header.
            const std::string more = histogram_log(connects_, "connect", start_real_s_, seconds_);
            file << more.substr(more.find("Tag="));
        }
        if (!file.flush()) throw Failure(kSystem, "cannot write " + options_.histogram_file);
    }

    const Options& options_;
    Address server_;
    bool single_;
    Poller poller_;
    std::vector<char> buffer_;
    std::vector<Slot> slots_;
    Histogram round_trips_, connects_;
    bool measured_ = false;
    std::uint64_t warmup_ = 0, lost_ = 0;
    std::int64_t now_ = 0, heard_ = 0, checked_ = 0;
    double seconds_ = 0, start_real_s_ = 0;
};

}  // namespace

int request(const Options& options) { return Client(options).run(); }

}  // namespace k8sdds
