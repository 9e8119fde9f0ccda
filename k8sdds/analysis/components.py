"""Assign stacks to components of the datapath by the kernel's functions: the only place that names these functions.

A stack belongs to the component of its deepest function that is listed here. Functions that many components call, such
as `memcpy` or `_raw_spin_lock`, are not listed, so that their callers decide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Component:
    """A part of the work on packets. `functions` has the beginnings of the names of its functions."""

    name: str
    description: str
    functions: str = ""


VETH = Component("veth", "pairs of virtual interfaces", "veth_")
BRIDGE = Component(
    "bridge", "Linux bridges, of networks and of the lab's switch",
    "br_ __br_ fdb_ nbp_ maybe_deliver deliver_clone should_deliver",
)  # fmt: skip
NETFILTER = Component(
    "netfilter", "nftables, iptables, connection tracking, br_netfilter",
    "nf_ __nf_ nft_ __nft_ ipt_ ip6t_ xt_ ip_set_ hash_ip hash_net iptable_ br_nf_ nfnetlink nfqnl_ ctnetlink "
    "ip_route_me_harder resolve_normal_ct early_drop ipv4_conntrack hash_conntrack __ip_vs ip_vs_ set_match_v "
    "get_l4proto",
)  # fmt: skip
TUNNEL = Component(
    "tunnel", "encapsulation: VXLAN, IP-in-IP, ESP, WireGuard, Open vSwitch; tun and packet sockets of daemons",
    "vxlan_ __vxlan_ geneve_ gre_ ipgre_ ipip_ tunnel4_ ip_tunnel_ iptunnel_ udp_tunnel __udp_tunnel "
    "setup_udp_tunnel gro_cell xfrm_ __xfrm_ xfrm4_ xfrm6_ esp_ esp4_ esp6_ wg_ tun_ ovs_ do_execute_actions "
    "clone_execute fou_ packet_ tpacket_ prb_ __packet_",
)  # fmt: skip
CRYPTO = Component(
    "crypto", "ciphers and hashes, of the kernel or of libcrypto",
    "aes _aes crypto_ gcm generic_gcm chacha hchacha poly1305 ghash clmul_ sha1_ sha2 sha5 blake2s curve25519 "
    "skcipher scatterwalk simd_aead simd_skcipher pcrypt padata_ rfc4106 gf128mul cbc_ ctr_ hmac_ cryptd_",
)  # fmt: skip
BPF = Component(
    "eBPF", "BPF programs and traffic control filters",
    "bpf_ __bpf_ ___bpf_ cls_bpf tcf_ tcx_ tc_run sch_handle_ skb_do_redirect htab_ __htab_ array_map clsact xdp_ "
    "do_xdp",
)  # fmt: skip
COPY = Component(
    "copy", "copies between user space and packets",
    "copy_user_ _copy_to_ _copy_from_ copy_to_iter copy_from_iter copy_page_from rep_movs skb_copy_datagram "
    "__skb_datagram_iter simple_copy_to_iter csum_and_copy csum_partial_copy __check_object_size check_heap_object "
    "ip_generic_getfrag memcpy_to_iter memcpy_from_iter raw_copy skb_copy_bits skb_splice fault_in_iov copyin "
    "copyout",
)  # fmt: skip
WAKE_UP = Component(
    "socket wake-up", "waking the receiver, and waiting for packets",
    "sock_def_ sk_data_ready ep_ do_epoll_ __skb_wait_for_more sk_wait_ sk_stream_wait do_sys_poll do_poll "
    "do_select core_sys_select sock_poll datagram_poll udp_poll tcp_poll poll_ pollwake receiver_wake sock_wait "
    "eventpoll_ __pollwait",
)  # fmt: skip
BUFFERS = Component(
    "packet buffers", "allocating and freeing packets",
    "__alloc_skb alloc_skb __build_skb build_skb __napi_build __napi_alloc napi_alloc napi_skb kmalloc_reserve "
    "kfree_skb __kfree_skb consume_skb __consume_ skb_release skb_free_ skb_attempt_defer skb_defer_free "
    "sock_alloc_send sock_wmalloc sock_wfree __sock_wfree sock_rfree skb_clone __skb_clone skb_copy skb_head pskb_ "
    "__pskb_ skb_page_frag page_frag skb_set_owner skb_expand skb_push skb_pull skb_put skb_ensure skb_try "
    "napi_consume net_zcopy dev_kfree dst_release skb_segment skb_scrub",
)  # fmt: skip
TRANSPORT = Component(
    "UDP/TCP", "sockets and transport protocols",
    "udp_ __udp udp4_ udp6_ udpv6_ tcp_ __tcp tcp4_ tcp6_ cubictcp bictcp bbr_ inet_sendmsg inet_recvmsg inet_send "
    "inet6_sendmsg inet6_recvmsg inet_accept inet_stream inet_csk inet_ehash __inet_ inet_lookup sk_ __sk_ "
    "sock_queue __sock_queue __skb_recv_udp __skb_try_recv skb_consume_udp first_packet_length lock_sock "
    "release_sock __lock_sock __release_sock csum_partial __skb_checksum skb_checksum skb_queue security_sock icmp_ "
    "ping_ raw_ __sock_recv sock_recv_ put_cmsg reuseport lock_timer_base get_random_ siphash net_secure",
)  # fmt: skip
ROUTING = Component(
    "routing", "IP: routes, neighbors, forwarding, fragments",
    "ip_ __ip_ ip6_ __ip6 ipv6_ ipv4_ fib_ __fib fib4_ fib6_ rt_ rt6_ dst_ neigh_ __neigh arp_ ndisc_ eth_ "
    "inet_frag inet_select inet_addr inet_gro ipv4 inet_gso inet_dev find_exception raw_local_deliver igmp_ trie_ "
    "key_vector",
)  # fmt: skip
DEVICES = Component(
    "queues and devices", "queues of packets and the drivers of other devices",
    "net_rx_action net_tx_action __napi_ napi_ process_backlog __netif_ netif_ enqueue_to_backlog __dev_ dev_ "
    "sch_direct __qdisc qdisc_ validate_xmit skb_network skb_gso __skb_gso skb_mac gro_ __skb_flow ___skb_get "
    "__skb_get flow_ tbf_ netem_ fq_ pfifo loopback_ macvlan_ passthru_features harmonize skb_csum virtnet_ "
    "virtqueue_ vring_ vp_ mlx ixgbe i40e igb_ ice_ bnxt e1000 ena_ deliver_skb deliver_ptype bond_ team_ "
    "__skb_vlan vlan_ skb_vlan skb_warn",
)  # fmt: skip
STEERING = Component(
    "packet steering", "RPS: interrupts to the core of the receiver",
    "net_rps rps_ get_rps_cpu set_rps napi_schedule_rps smp_call_function_single_async",
)  # fmt: skip
INTERRUPTION = Component(
    "interrupts", "entering interrupts and softirqs; without a PMU, also what runs while interrupts are disabled",
    "handle_softirqs __do_softirq do_softirq __local_bh __irq_exit irq_exit run_ksoftirqd sysvec_call_function "
    "__sysvec_call_function",
)  # fmt: skip
SCHEDULING = Component(
    "scheduling", "locks between threads (futex), timers, and switches between threads",
    "futex_ __futex do_futex hrtimer_ __hrtimer do_nanosleep common_nsleep exit_to_user_mode __x64_sys_futex "
    "sched_yield do_sched_yield preempt_schedule __cond_resched irqentry_exit rcu_ __rcu tick_ timer_ __sysvec "
    "sysvec_ sched_ttwu flush_smp __flush_smp worker_thread process_one_work smpboot_thread wait_woken run_timer "
    "__run_timer raw_spin_rq_ migration_ cpu_stopper schedule_tail ret_from_fork sched_balance rebalance_ "
    "run_rebalance",
)  # fmt: skip
SYSTEM_CALLS = Component(
    "system calls", "entering and leaving the kernel, and finding sockets",
    "do_syscall entry_SYSCALL x64_sys_call __x64_sys_ __arm64_sys el0_ invoke_syscall syscall_ __sys_ ___sys_ "
    "____sys_ sock_sendmsg __sock_sendmsg sock_recvmsg sock_read sock_write import_ __import move_addr "
    "sockfd_lookup fdget fput __fget __fdget fget ksys_ vfs_ new_sync audit_ seccomp_ __seccomp sendmsg_copy "
    "copy_msghdr copy_iovec iovec_from ret_from security_",
)  # fmt: skip

APPLICATION = Component("application", "user space of the participants: DDS, and the test program")
DAEMON = Component("network daemon", "user space of the network's own programs, such as a userspace tunnel")
OTHER = Component("other", "functions that belong to none of these")

_KERNEL = (
    VETH, NETFILTER, BRIDGE, TUNNEL, CRYPTO, BPF, COPY, WAKE_UP, BUFFERS, TRANSPORT, ROUTING, DEVICES, STEERING,
    INTERRUPTION, SCHEDULING, SYSTEM_CALLS,
)  # fmt: skip
"""The components with functions. Of several components that match a name, the one with the longest beginning counts."""
COMPONENTS = (*_KERNEL, APPLICATION, DAEMON, OTHER)
"""All components, in the order of tables."""
DATAPATH = (VETH, BRIDGE, NETFILTER, TUNNEL, CRYPTO, BPF, ROUTING, DEVICES, STEERING, INTERRUPTION)
"""Components whose work in kernel threads and interrupts is part of a profile."""

_BY_FUNCTION = {function: component for component in _KERNEL for function in component.functions.split()}
_FUNCTIONS = re.compile("|".join(map(re.escape, sorted(_BY_FUNCTION, key=len, reverse=True))))
_CRYPTO_CODE = re.compile(r"\((libcrypto|libgcrypt|libnettle|libsodium|libmbedcrypto)[^)]*\)$|^(libcrypto|libgcrypt)\b"
                          r"|golang\.org/x/crypto/|crypto/internal/|^crypto/")  # fmt: skip
"""User space functions and files of ciphers."""

INTERRUPTS = "interrupts"
PARTICIPANT, NETWORK, SERVICE, LINK = "participant", "network", "service", "link"
"""Whose process a sample belongs to; `INTERRUPTS`: to none, or to kernel threads."""


@cache
def of_function(name: str) -> Component | None:
    """Return the component of a kernel function, or None if it is not listed."""
    found = _FUNCTIONS.match(name)
    return _BY_FUNCTION[found[0]] if found else None


def of_kernel(kernel: Sequence[str]) -> Component | None:
    """Return the component of the deepest function of a kernel stack that belongs to one, or None."""
    return next(filter(None, map(of_function, reversed(kernel))), None)


def of_stack(owner: str, user: Sequence[str], kernel: Sequence[str]) -> Component:
    """Return the component of a stack; both parts begin with the outermost function."""
    if kernel:
        return of_kernel(kernel) or OTHER
    if any(map(_CRYPTO_CODE.search, user)):
        return CRYPTO
    return DAEMON if owner == NETWORK else APPLICATION
