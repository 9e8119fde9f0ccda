"""Plan IKEv2 and ESP between all nodes with strongSwan, for flannel-ipsec and weavenet-encrypt.

Each node runs one charon with its configuration, control socket and log in a separate folder. The kernel engine
uses the kernel's ESP (XFRM). The userspace engine uses strongSwan's ESP in UDP behind a TUN device
(kernel-libipsec), for kernels without ESP. Both add routes to the peers only together with the tunnel (table 220),
so without a tunnel no packet leaves the node unencrypted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from k8sdds.networks.datapath import (
    Batch,
    Daemon,
    Datapath,
    EncryptionProof,
    ErrorHint,
    File,
    LabNode,
    Topology,
)
from k8sdds.networks.network import Engine
from k8sdds.system.kernel_features import ESP, STRONGSWAN, TUN

KERNEL, USERSPACE = "kernel", "userspace"
"""Names of the engines in experiments."""
TUN_MTU = 1400
"""MTU of ipsec0, the TUN device of kernel-libipsec."""

UNVERIFIED = "encryption: reading a node's IPsec states requires NET_ADMIN"
"""What a cluster test without privileges cannot verify of these networks."""

MIN_PSK_CHARACTERS = 96
"""Minimum length of the pre-shared key: flannel's IPsec backend requires it, and the lab for all networks."""

FOLDER = "/run/k8sdds"
"""Folder inside the sandbox for the nodes' configurations, sockets and logs."""
INITIATE_TIMEOUT_S = 20

Selectors = Callable[[LabNode, LabNode], tuple[str, str]]
"""(node, peer) → traffic selectors of both: the packets that enter the tunnel between them."""


def engines(mode: str, kernel_mtus: tuple[int, int], userspace_mtus: tuple[int, int]) -> tuple[Engine, ...]:
    """Return both engines, given the mode of the kernel's ESP, and the default and the largest MTU with each."""
    return (
        Engine(
            KERNEL, "kernel ESP", mode, *kernel_mtus, requires=(STRONGSWAN, ESP),
            # The rule also applies to the content of ESP packets, after decryption.
            loss_exemption="the rule drops only UDP packets, but kernel ESP sends ESP packets",
        ),
        Engine(
            USERSPACE, "userspace ESP", "tunnel", *userspace_mtus, requires=(STRONGSWAN, TUN), fixed_mtu=True
        ),
    )  # fmt: skip


def _folder(node: LabNode) -> str:
    return f"{FOLDER}/{node.name}"


def _uri(node: LabNode) -> str:
    return f"unix://{_folder(node)}/charon.vici"


def _charon_conf(node: LabNode, engine: Engine) -> str:
    """Return strongswan.conf of a node: loads only the plugins in use and logs only to stdout."""
    userspace = engine.name == USERSPACE
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


_SECRETS = 'secrets {\n  ike-all {\n    secret = "$psk"\n  }\n}\n'


def _connection(node: LabNode, peer: LabNode, engine: Engine, cipher: str, selectors: Selectors) -> str:
    """Return the connection to a peer for swanctl.conf."""
    local_ts, remote_ts = selectors(node, peer)
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
        local_ts = {local_ts}
        remote_ts = {remote_ts}
        esp_proposals = {cipher}
      }}
    }}
  }}
"""


def encrypted(
    datapath: Datapath, topology: Topology, engine: Engine | None, cipher: str, selectors: Selectors
) -> Datapath:
    """Add an IPsec tunnel between every two nodes to a datapath, and the proof that no packet bypasses it."""
    assert engine is not None
    files, daemons, tunnels = [], [], []
    for node in topology.nodes:
        peers = topology.peers(node)
        connections = "".join(_connection(node, peer, engine, cipher, selectors) for peer in peers)
        configuration = f"{_folder(node)}/swanctl.conf"
        files += [
            File(f"{_folder(node)}/strongswan.conf", _charon_conf(node, engine)),
            File(configuration, f"connections {{\n{connections}}}\n{_SECRETS}"),
        ]
        initiate = {
            peer: f"--initiate --child {peer.name} --timeout {INITIATE_TIMEOUT_S} --uri {_uri(node)}"
            for peer in peers
        }
        daemons.append(
            Daemon(
                namespace=node.name,
                argv=("charon-systemd",),
                environment=(("STRONGSWAN_CONF", f"{_folder(node)}/strongswan.conf"),),
                log=f"{_folder(node)}/charon.log",
                ready=("swanctl", "--load-all", "--uri", _uri(node), "--file", configuration),
                rejoins=(Batch(node.name, "swanctl", tuple(initiate.values())),),
            )
        )
        # Each command waits for its tunnel.
        initiated = tuple(line for peer, line in initiate.items() if peer.index > node.index)
        tunnels += [Batch(node.name, "swanctl", initiated)] if initiated else []
    return replace(
        datapath,
        files=tuple(files),
        daemons=tuple(daemons),
        tunnels=tuple(tunnels),
        error_hints=_ERROR_HINTS,
        encryption_proof=encryption_proof(topology, engine),
    )


_ERROR_HINTS = (
    ErrorHint(
        "AUTHENTICATION_FAILED",
        "cannot establish IPsec tunnels: the nodes' pre-shared keys differ",
        "give all nodes the same pre-shared key",
    ),
    ErrorHint(
        "NO_PROPOSAL_CHOSEN",
        "cannot establish IPsec tunnels: the nodes have no common cipher",
        "see which ciphers this kernel has: /proc/crypto",
    ),
)


def encryption_proof(topology: Topology, engine: Engine) -> EncryptionProof:
    """Return the proof that only ESP (plain or in UDP) and IKE packets pass between nodes."""
    return EncryptionProof(
        encrypted="udp dport 4500 @th,64,32 != 0" if engine.name == USERSPACE else "ip protocol esp",
        # On port 4500 an IKE message starts with four zero bytes, an ESP packet does not (RFC 3948, section 2).
        allowed=("udp dport 500", "udp dport 4500 @th,64,32 0"),
        counters={
            node.name: ("swanctl", "--list-sas", "--raw", "--uri", _uri(node)) for node in topology.nodes
        },
        received_bytes=r"bytes-in=(\d+)",
    )
