// What k8sdds-perftest uses of Zenoh: sessions, publishers and subscribers of bytes, and the presence of peers.
// Functions that can fail set `error` to a text, which the caller frees with k8sdds_zenoh_free().
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

struct ZenohSession;
struct ZenohPublisher;

enum ZenohCongestionControl { congestion_drop, congestion_block };

// Where a sample is: in a new buffer; in one with the payload that all samples of a publisher share; or in memory that
// peers on this host map.
enum ZenohPlace { place_new, place_one_payload, place_shared_memory };

enum ZenohPut { put_ok, put_blocked, put_failed };    // blocked: no room within the time

struct ZenohQos {
    bool reliable;
    int congestion_control;                   // a ZenohCongestionControl
    int priority;                             // 1 (real time) to 7 (background)
};

// Called by threads of the library, several at a time. The bytes are valid during the call, and came in shared memory or
// by a connection.
typedef void (*ZenohBytes)(void* context, const uint8_t* data, size_t length, bool in_memory);
typedef void (*ZenohPresence)(void* context, bool present, uint32_t number, uint32_t incarnation);

void k8sdds_zenoh_free(char* text);

// Returns why a user's configuration (JSON5) is refused; NULL if it is not. Publishers of a reliable test must not drop samples.
char* k8sdds_zenoh_refused(const char* configuration, bool reliable);

// Opens a session with a user's configuration and the values of our own, which have precedence; and with so many bytes of
// shared memory for the samples that it sends.
ZenohSession* k8sdds_zenoh_open(const char* configuration, const char* own, size_t shared_bytes, char** error);
// No callback runs after it returns.
void k8sdds_zenoh_close(ZenohSession*);

ZenohPublisher* k8sdds_zenoh_publisher(ZenohSession*, const char* key, ZenohQos, char** error);
void k8sdds_zenoh_delete_publisher(ZenohPublisher*);
// Returns the QoS in effect, which the user's configuration may have changed.
ZenohQos k8sdds_zenoh_qos(const ZenohPublisher*);
// Called by one thread at a time. With place_one_payload the payload must be the same in all calls: it is copied by the first
// one only. `longest_wait_ns` is for a free buffer in shared memory: nothing is sent in another way instead.
ZenohPut k8sdds_zenoh_put(ZenohPublisher*, const uint8_t* head, size_t head_length, const uint8_t* payload,
                          size_t payload_length, ZenohPlace, int64_t longest_wait_ns);

// Passes what arrives to the callback, until the session is closed.
bool k8sdds_zenoh_subscribe(ZenohSession*, const char* key, ZenohBytes, void* context, char** error);
// Puts what arrives into one queue of the session, which blocks its sender while it is full.
bool k8sdds_zenoh_subscribe_queue(ZenohSession*, const char* key, size_t capacity, char** error);
bool k8sdds_zenoh_wait(ZenohSession*, int64_t timeout_ns);       // whether the queue holds something
unsigned k8sdds_zenoh_take(ZenohSession*, unsigned most, ZenohBytes, void* context);   // returns how many it passed

// Announces this session under a key with its number and incarnation, until it is closed; and observes who announces itself.
bool k8sdds_zenoh_appear(ZenohSession*, const char* key, uint32_t number, uint32_t incarnation, char** error);
bool k8sdds_zenoh_watch(ZenohSession*, const char* key, ZenohPresence, void* context, char** error);

}  // extern "C"
