// The path of a packet between pods in the manner of Cilium's BPF host routing, for the lab.
//
// Each packet of a pod is looked up in the maps that Cilium looks up when no policy and no Service applies: connection
// tracking in both directions, the identities of addresses, and policies. It then leaves through the node's interface
// (bpf_fib_lookup, bpf_redirect_neigh) or the tunnel device, where it is looked up whether to translate its address. A
// packet that arrives is also looked up as one to a Service and as an answer to a translated one, and is handed to the
// pod's end of its veth pair (bpf_redirect_peer). Neither direction reaches the node's stack, except inside a tunnel.
//
// No agent fills the maps. A missing entry is derived from the address, according to the plan of the lab, and inserted.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The first members of the kernel's context.
struct __sk_buff {
    u32 length, type, mark;
};

enum { MAP_HASH = 1, MAP_PERCPU_HASH = 5, MAP_LRU_HASH = 9, MAP_LRU_PERCPU_HASH = 10, MAP_LPM_TRIE = 11 };
enum { ACT_OK = 0, ACT_SHOT = 2 };
enum { NO_PREALLOC = 1, ZERO_CHECKSUM = 2, OF_TUNNEL = 0xe00 };
enum { FIB_SUCCESS = 0, FIB_NO_NEIGH = 7, AF_INET_ = 2 };
enum { PROTO_TCP = 6, PROTO_UDP = 17 };
enum { ETH = 14, TTL = ETH + 8, CHECKSUM = ETH + 10 };
enum { FIRST_POD = 2, FIRST_DEVICE = 100, TUNNEL_DEVICE = 99 };  // see lab.py
#define POD_PREFIX 0x0af4u      // 10.244.0.0/16: third byte: node, fourth byte: pod
#define NODE_ADDRESS 0xc0a84d0au  // 192.168.77.10: node 0

#define be16(x) __builtin_bswap16(x)
#define be32(x) __builtin_bswap32(x)
#define section(name) __attribute__((section(name), used))
#define inlined static inline __attribute__((always_inline))

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*ktime_ns)(void) = (void *)5;
static long (*store_bytes)(struct __sk_buff *skb, u32 offset, const void *from, u32 length, u64 flags) = (void *)9;
static long (*l3_csum_replace)(struct __sk_buff *skb, u32 offset, u64 from, u64 to, u64 flags) = (void *)10;
static long (*redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*set_tunnel_key)(struct __sk_buff *skb, const void *key, u32 size, u64 flags) = (void *)21;
static long (*load_bytes)(const struct __sk_buff *skb, u32 offset, void *to, u32 length) = (void *)26;
static long (*fib_lookup)(struct __sk_buff *skb, void *parameters, int size, u32 flags) = (void *)69;
static long (*redirect_neigh)(u32 ifindex, void *parameters, int size, u64 flags) = (void *)152;
static long (*redirect_peer)(u32 ifindex, u64 flags) = (void *)155;

// -- maps: types and sizes in the order of Cilium's defaults ------------------------------------------------------

struct tuple {
    u32 destination, source;
    u16 destination_port, source_port;
    u8 protocol, direction;
    u16 unused;
};
struct connection {
    u64 packets, bytes, seen_ns;
};
struct prefix {
    u32 length, address;
};
struct remote {
    u32 identity, node;
};
struct fragment {
    u32 destination, source;
    u16 id;
    u8 protocol, unused;
};
struct ports {
    u16 source, destination;
};
struct rule {
    u32 length, identity;
    u8 direction, protocol;
    u16 port;
};
struct metric {
    u64 packets, bytes;
};
struct endpoint {
    u32 ifindex;
    u8 pod_mac[6], node_mac[6];
};

struct {
    int (*type)[MAP_LRU_HASH];
    struct tuple *key;
    struct connection *value;
    int (*max_entries)[65536];
} connections section(".maps");
struct {
    int (*type)[MAP_LPM_TRIE];
    int (*map_flags)[NO_PREALLOC];
    struct prefix *key;
    struct remote *value;
    int (*max_entries)[4096];
} identities section(".maps");
struct {
    int (*type)[MAP_HASH];
    struct tuple *key;
    u32 *value;
    int (*max_entries)[1024];
} services section(".maps");
struct {
    int (*type)[MAP_LPM_TRIE];
    int (*map_flags)[NO_PREALLOC];
    struct rule *key;
    u32 *value;
    int (*max_entries)[16384];
} policies section(".maps");
struct {
    int (*type)[MAP_LRU_PERCPU_HASH];
    struct rule *key;
    struct metric *value;
    int (*max_entries)[1024];
} matches section(".maps");
struct {
    int (*type)[MAP_PERCPU_HASH];
    u32 *key;
    struct metric *value;
    int (*max_entries)[1024];
} metrics section(".maps");
struct {
    int (*type)[MAP_HASH];
    u32 *key;
    struct endpoint *value;
    int (*max_entries)[1024];
} endpoints section(".maps");
struct {
    int (*type)[MAP_LRU_HASH];
    struct fragment *key;
    struct ports *value;
    int (*max_entries)[8192];
} fragments section(".maps");

// -- steps -------------------------------------------------------------------------------------------------------

struct ipv4 {
    u8 length, service;
    u16 total, id, offset;
    u8 ttl, protocol;
    u16 checksum;
    u32 source, destination;
};

// Read the headers; ports of later IP fragments come from the first one. Returns 0 for a packet that is not IPv4.
inlined int read_packet(struct __sk_buff *skb, struct ipv4 *ip, struct tuple *tuple) {
    u16 protocol;
    struct ports ports = {};
    if (load_bytes(skb, 12, &protocol, 2) || protocol != be16(0x0800) || load_bytes(skb, ETH, ip, sizeof(*ip)))
        return 0;
    struct fragment key = {ip->destination, ip->source, ip->id, ip->protocol, 0};
    if (ip->offset & be16(0x1fff)) {
        struct ports *first = map_lookup(&fragments, &key);
        if (!first)
            return 0;
        ports = *first;
    } else if (ip->protocol == PROTO_UDP || ip->protocol == PROTO_TCP) {
        if (load_bytes(skb, ETH + sizeof(*ip), &ports, sizeof(ports)))
            return 0;
        if (ip->offset & be16(0x2000))
            map_update(&fragments, &key, &ports, 0);
    }
    tuple->destination = ip->destination;
    tuple->source = ip->source;
    tuple->destination_port = ports.destination;
    tuple->source_port = ports.source;
    tuple->protocol = ip->protocol;
    return 1;
}

// Whether a packet is between pods.
#define is_of_pods(ip) (be32((ip)->destination) >> 16 == POD_PREFIX && be32((ip)->source) >> 16 == POD_PREFIX)

// Look up the flow of which a packet is an answer.
inlined struct connection *answered(struct tuple *tuple) {
    struct tuple reverse = {tuple->source, tuple->destination, tuple->source_port, tuple->destination_port,
                            tuple->protocol, 1 - tuple->direction, 0};
    return map_lookup(&connections, &reverse);
}

// Look up the flow: as an answer first, then in its own direction. Returns whether the packet is an answer.
inlined int track(struct tuple *tuple, u32 bytes) {
    struct connection *known = answered(tuple);
    int answer = known != 0;
    if (!known)
        known = map_lookup(&connections, tuple);
    if (known) {
        known->seen_ns = ktime_ns();
        __sync_fetch_and_add(&known->packets, 1);
        __sync_fetch_and_add(&known->bytes, bytes);
    } else {
        struct connection new = {1, bytes, ktime_ns()};
        map_update(&connections, tuple, &new, 0);
    }
    return answer;
}

// Look up the identity and the node of an address.
inlined struct remote identify(u32 address) {
    struct prefix key = {32, address};
    struct remote *known = map_lookup(&identities, &key);
    if (known)
        return *known;
    u32 host = be32(address);
    struct remote new = {0x10000 + (host & 0xffff), be32(NODE_ADDRESS + (host >> 8 & 0xff))};
    map_update(&identities, &key, &new, 0);
    return new;
}

// Count a packet.
inlined void count(void *map, const void *key, u32 bytes) {
    struct metric *known = map_lookup(map, key);
    if (known) {
        known->packets++;
        known->bytes += bytes;
    } else {
        struct metric new = {1, bytes};
        map_update(map, key, &new, 0);
    }
}

// Count a packet that enters (0) or leaves (1) a device.
inlined void count_direction(u32 direction, struct ipv4 *ip) {
    count(&metrics, &direction, be16(ip->total));
}

// Look up whether an identity may exchange packets with the pod: a rule for it, and one for all identities. Only an
// entry for everything exists. Count its matches.
inlined void check_policy(u32 identity, struct tuple *tuple, u32 bytes) {
    struct rule key = {64, identity, tuple->direction, tuple->protocol, tuple->destination_port};
    map_lookup(&policies, &key);
    key.identity = 0;
    if (!map_lookup(&policies, &key)) {
        u32 allowed = 1;
        struct rule every = key;
        every.length = 40;
        map_update(&policies, &every, &allowed, 0);
    }
    count(&matches, &key, bytes);
}

// Look up whether the destination is a Service of the protocol, or of any.
inlined int is_service(struct tuple *tuple) {
    struct tuple key = {tuple->destination, 0, tuple->destination_port, 0, tuple->protocol, 0, 0};
    if (map_lookup(&services, &key))
        return 1;
    key.protocol = 0;
    return map_lookup(&services, &key) != 0;
}

inlined void decrement_ttl(struct __sk_buff *skb, struct ipv4 *ip) {
    u8 ttl = ip->ttl - 1;
    l3_csum_replace(skb, CHECKSUM, be16(ip->ttl << 8 | ip->protocol), be16(ttl << 8 | ip->protocol), 2);
    store_bytes(skb, TTL, &ttl, 1, 0);
}

// Look up a pod of this node.
inlined struct endpoint *find_pod(u32 address) {
    struct endpoint *known = map_lookup(&endpoints, &address);
    if (known)
        return known;
    u8 slot = (be32(address) & 0xff) - FIRST_POD;
    struct endpoint new = {FIRST_DEVICE + slot, {2, 0xc1, 0, 0, 1, slot}, {2, 0xc1, 0, 0, 0, slot}};
    map_update(&endpoints, &address, &new, 0);
    return map_lookup(&endpoints, &address);
}

// Deliver a packet to a pod of this node, as its own end of the veth pair had received it.
inlined int deliver(struct __sk_buff *skb, struct ipv4 *ip, struct tuple *tuple) {
    struct endpoint *pod = find_pod(ip->destination);
    if (!pod)
        return ACT_SHOT;
    tuple->direction = 1;
    u32 identity = identify(ip->source).identity;
    if (!track(tuple, be16(ip->total)))
        check_policy(identity, tuple, be16(ip->total));
    count_direction(0, ip);
    decrement_ttl(skb, ip);
    store_bytes(skb, 0, pod->pod_mac, 6, 0);
    store_bytes(skb, 6, pod->node_mac, 6, 0);
    return redirect_peer(pod->ifindex, 0);
}

#define is_local(ip) (((ip)->source ^ (ip)->destination) & be32(0xffffff00)) == 0

// No verdict of tc.
#define TO_OTHER_NODE -2

// Check a packet of a pod, and deliver it if the other pod is on the same node. Returns the verdict, or TO_OTHER_NODE.
// The node's stack handles what is no packet to a pod.
inlined int leave(struct __sk_buff *skb, struct ipv4 *ip, struct remote *remote) {
    struct tuple tuple = {};
    if (!read_packet(skb, ip, &tuple) || !is_of_pods(ip))
        return ACT_OK;
    *remote = identify(ip->destination);
    if (!track(&tuple, be16(ip->total)))
        check_policy(remote->identity, &tuple, be16(ip->total));
    if (is_local(ip))
        return deliver(skb, ip, &tuple);
    map_lookup(&endpoints, &ip->destination);
    count_direction(1, ip);
    return TO_OTHER_NODE;
}

// -- programs ----------------------------------------------------------------------------------------------------

// On the node's end of each pod's veth pair, with routes between the nodes.
section("from-pod-native") int from_pod_native(struct __sk_buff *skb) {
    struct ipv4 ip;
    struct remote remote;
    int verdict = leave(skb, &ip, &remote);
    if (verdict != TO_OTHER_NODE)
        return verdict;
    // The kernel's struct bpf_fib_lookup. With a length of 0, the kernel compares the MTU with each segment of a packet instead of
    // the whole packet, which TCP leaves unsegmented here and which is longer than the MTU.
    struct {
        u8 family, protocol;
        u16 source_port, destination_port, length;
        u32 ifindex, service;
        u32 source[4], destination[4];
        u32 vlan;
        u8 source_mac[6], destination_mac[6];
    } route = {.family = AF_INET_, .protocol = ip.protocol};
    route.source[0] = ip.source;
    route.destination[0] = ip.destination;
    route.ifindex = FIRST_DEVICE + (be32(ip.source) & 0xff) - FIRST_POD;
    long found = fib_lookup(skb, &route, sizeof(route), 0);
    if (found != FIB_SUCCESS && found != FIB_NO_NEIGH)
        return ACT_SHOT;
    decrement_ttl(skb, &ip);
    if (found == FIB_NO_NEIGH)
        return redirect_neigh(route.ifindex, 0, 0, 0);
    store_bytes(skb, 0, route.destination_mac, 6, 0);
    store_bytes(skb, 6, route.source_mac, 6, 0);
    return redirect(route.ifindex, 0);
}

// The same, with VXLAN between the nodes.
section("from-pod-vxlan") int from_pod_vxlan(struct __sk_buff *skb) {
    struct ipv4 ip;
    struct remote remote;
    int verdict = leave(skb, &ip, &remote);
    if (verdict != TO_OTHER_NODE)
        return verdict;
    // The kernel's struct bpf_tunnel_key, without its last member.
    struct {
        u32 identity, node, unused[3];
        u8 service, ttl;
        u16 flags;
        u32 label;
    } tunnel = {.identity = identify(ip.source).identity & 0xffffff, .node = be32(remote.node)};
    if (set_tunnel_key(skb, &tunnel, sizeof(tunnel), ZERO_CHECKSUM))
        return ACT_SHOT;
    skb->mark = OF_TUNNEL;
    return redirect(TUNNEL_DEVICE, 0);
}

// On the device to other nodes, for packets that leave: look up whether the packet answers one to a Service, and whether
// its source address must be translated, which answers are not.
section("to-nodes") int to_nodes(struct __sk_buff *skb) {
    struct ipv4 ip;
    struct tuple tuple = {};
    if (read_packet(skb, &ip, &tuple) && is_of_pods(&ip)) {
        answered(&tuple);
        find_pod(ip.source);
        answered(&tuple);
        count_direction(1, &ip);
    }
    return ACT_OK;
}

// On the node's interface and on its tunnel device, for packets that arrive. The node's stack handles those that are
// not between pods, such as packets of the tunnel.
section("from-nodes") int from_nodes(struct __sk_buff *skb) {
    struct ipv4 ip;
    struct tuple tuple = {};
    if (!read_packet(skb, &ip, &tuple))
        return ACT_OK;
    count_direction(0, &ip);
    struct prefix source = {32, ip.source};
    map_lookup(&identities, &source);
    if (is_service(&tuple))
        return ACT_OK;
    if (is_of_pods(&ip))
        return deliver(skb, &ip, &tuple);
    map_lookup(&endpoints, &ip.destination);
    return ACT_OK;
}

char license_text[] section("license") = "GPL";
