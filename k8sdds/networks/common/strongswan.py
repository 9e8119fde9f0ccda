"""IKEv2 and ESP between all nodes by strongSwan, as data: what `flannel-ipsec` and `weavenet-encrypt` share.

One charon on each node, with its configuration, its control socket and its log in a folder of its own. The
kernel engine leaves ESP to the kernel (XFRM); the userspace engine is strongSwan's own ESP in UDP behind a
TUN device (kernel-libipsec), for kernels without ESP. Both make the routes to the peers only with the
tunnel (table 220): without a tunnel nothing leaves the node in the clear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from k8sdds.networks.network import (
    Batch,
    Daemon,
    Datapath,
    Engine,
    ErrorHint,
    File,
    Node,
    Topology,
    WireProof,
)

KERNEL, USERSPACE = "kernel", "userspace"
"""What experiments call the engines."""
KERNEL_NEEDS = ("strongswan", "esp")
USERSPACE_NEEDS = ("strongswan", "tun")
TUN_MTU = 1400
"""MTU of ipsec0, kernel-libipsec's device."""

UNSEEN = "that its packets are encrypted: only who has NET_ADMIN on a node may read its IPsec states"
"""Of these networks on a cluster, where participants and those beside them have no such right."""

FOLDER = "/run/k8sdds"
INITIATE_TIMEOUT_S = 20

Selectors = Callable[[Node, Node], tuple[str, str]]
"""(node, peer) → traffic selectors of the two: what goes into the tunnel between them."""


def _folder(node: Node) -> str:
    return f"{FOLDER}/{node.name}"


def _uri(node: Node) -> str:
    return f"unix://{_folder(node)}/charon.vici"


def _charon_conf(node: Node, engine: Engine) -> str:
    """strongswan.conf of one node: only the plugins that are used, logs to stdout alone."""
    userspace = engine.option == USERSPACE
    kernel = "kernel-libipsec kernel-netlink" if userspace else "kernel-netlink"
    return f"""charon-systemd {{
  load = random nonce openssl aes sha1 sha2 hmac gcm kdf pem pkcs1 x509 pubkey socket-default {kernel} vici
  install_routes = yes
  journal {{
    default = -1
  }}
  filelog {{
    stdout {{
      default = 1
      flush_line = yes
    }}
  }}
  plugins {{
    vici {{
      socket = {_uri(node)}
    }}
    kernel-libipsec {{
      allow_peer_ts = yes
    }}
  }}
}}
"""


def _connection(node: Node, peer: Node, engine: Engine, cipher: str, selectors: Selectors) -> str:
    own, theirs = selectors(node, peer)
    return f"""  to-{peer.name} {{
    version = 2
    local_addrs = {node.address}
    remote_addrs = {peer.address}
    proposals = {cipher}-prfsha256-curve25519
    local {{
      auth = psk
      id = {node.address}
    }}
    remote {{
      auth = psk
      id = {peer.address}
    }}
    children {{
      {peer.name} {{
        mode = {engine.mode}
        local_ts = {own}
        remote_ts = {theirs}
        esp_proposals = {cipher}
      }}
    }}
  }}
"""


def encrypted(
    datapath: Datapath, topology: Topology, engine: Engine | None, cipher: str, selectors: Selectors
) -> Datapath:
    """A datapath with a tunnel between every two nodes, and the proof that nothing passes beside it."""
    assert engine is not None
    return replace(
        datapath,
        files=files(topology, engine, cipher, selectors),
        daemons=daemons(topology),
        finish=tunnels(topology),
        meanings=MEANINGS,
        wire=wire(topology, engine),
    )


def files(topology: Topology, engine: Engine, cipher: str, selectors: Selectors) -> tuple[File, ...]:
    """strongswan.conf and swanctl.conf of every node; the latter holds the pre-shared key of the bench."""
    found = []
    for node in topology.nodes:
        connections = "".join(
            _connection(node, peer, engine, cipher, selectors) for peer in topology.peers(node)
        )
        secrets = 'secrets {\n  ike-all {\n    secret = "$psk"\n  }\n}\n'
        found += [
            File(f"{_folder(node)}/strongswan.conf", _charon_conf(node, engine)),
            File(f"{_folder(node)}/swanctl.conf", f"connections {{\n{connections}}}\n{secrets}"),
        ]
    return tuple(found)


def daemons(topology: Topology) -> tuple[Daemon, ...]:
    """One charon for each node, ready when it has taken its configuration."""
    return tuple(
        Daemon(
            namespace=node.name,
            argv=("charon-systemd",),
            environment=(("STRONGSWAN_CONF", f"{_folder(node)}/strongswan.conf"),),
            log=f"{_folder(node)}/charon.log",
            ready=(
                *("swanctl", "--load-all", "--uri", _uri(node)),
                *("--file", f"{_folder(node)}/swanctl.conf"),
            ),
        )
        for node in topology.nodes
    )


def tunnels(topology: Topology) -> tuple[Batch, ...]:
    """Bring up the tunnel between every two nodes; each line ends when its tunnel stands."""
    return tuple(
        Batch(
            node.name,
            "swanctl",
            tuple(
                f"--initiate --child {peer.name} --timeout {INITIATE_TIMEOUT_S} --uri {_uri(node)}"
                for peer in topology.peers(node)
                if peer.index > node.index
            ),
        )
        for node in topology.nodes[:-1]
    )


MEANINGS = (
    ErrorHint(
        "AUTHENTICATION_FAILED",
        "the nodes do not trust each other: their pre-shared keys differ, so there is no tunnel",
        "give all nodes the same pre-shared key",
    ),
    ErrorHint(
        "NO_PROPOSAL_CHOSEN",
        "the nodes agree on no cipher, so there is no tunnel",
        "see which ciphers this kernel has: /proc/crypto",
    ),
)


def wire(topology: Topology, engine: Engine) -> WireProof:
    """ESP, bare or in UDP, and nothing else but IKE."""
    return WireProof(
        encrypted="udp dport 4500 @th,64,32 != 0" if engine.option == USERSPACE else "ip protocol esp",
        # IKE on port 4500 is told from ESP by four zero bytes.
        beside=("udp dport 500", "udp dport 4500 @th,64,32 0"),
        tally={node.name: ("swanctl", "--list-sas", "--raw", "--uri", _uri(node)) for node in topology.nodes},
        received=r"bytes-in=(\d+)",
    )
