"""Eclipse Zenoh, which is not DDS: samples on key expressions, by TCP, UDP or QUIC, between peers or through a router.

The transport is a part of the middleware's name, because no result is comparable without it. With
`discovery: server`, all participants are clients of a router, which all samples pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from typing_extensions import override

from k8sdds import versions, workloads
from k8sdds.discovery import MULTICAST, SERVER, Service
from k8sdds.middleware.files import Configuration, ReadyFile
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.middleware.ports import Ports
from k8sdds.model import graph
from k8sdds.model.ip_families import IpFamily
from k8sdds.model.security import NONE, Protection
from k8sdds.model.trial import Cell, Endpoint, Participant, host_and_port
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError

BACKEND = "zenoh"
TCP, UDP, QUIC = "", "udp", "quic"
MODES = (UDP, QUIC)
"""Transports of the middlewares `zenoh-udp` and `zenoh-quic`. `zenoh` uses TCP, the library's default."""

MAX_PUBLISHERS, MAX_KEYS = 100, 10_000
"""What k8sdds-perftest has ports and publishers for."""
FIRST_PORT = 7500
"""Port of the first publisher of k8sdds-perftest in domain 0; each domain has MAX_PUBLISHERS."""
MAX_BATCH_BYTES = 65535
"""Longest unit that Zenoh sends: it batches samples into one, or fragments them to this length."""

REFERENCE_BYTES = 300
"""A ping and its pong are two TCP segments of about 80 bytes, each with an acknowledgment of 66 bytes."""

ROUTER = Service(
    name="k8sdds-zenoh",
    title="Zenoh router",
    manifest="discovery/zenoh.yaml",
    port=7447,  # the router's default
    protocol="tcp",
    image=versions.DISCOVERY_SERVER_IMAGE,
    program="zenohd",
    # Clients are connected to one router: two would have to be connected to each other, and cost another hop.
    replicas=1,
    relays=True,
)

_ASYNCHRONOUS = "Zenoh always sends by threads of its own: leave out {}"
REFUSALS = {
    "publish_mode": _ASYNCHRONOUS.format("publish_mode"),
    "flow_bytes": _ASYNCHRONOUS.format("flow_bytes"),
    "flow_period_ms": _ASYNCHRONOUS.format("flow_period_ms"),
    "fragment_bytes": "fragments of Zenoh fill a batch: leave out fragment_bytes, and give message_bytes",
}


class Zenoh(K8sddsPerftest):
    """Zenoh by one of its transports, with its router."""

    settings = K8sddsPerftest.settings - REFUSALS.keys()
    refusals = MappingProxyType(REFUSALS)
    config_suffix = ".json5"
    qos_option = "-middlewareConfig"
    locks_shared_memory = True
    reference_bytes = REFERENCE_BYTES
    setup = "k8sdds setup --for lab-zenoh"
    build_option = "K8SDDS_ZENOH"

    def __init__(self, mode: str = TCP) -> None:
        super().__init__(BACKEND, ROUTER, mode)
        self.tcp = self.reports_match = self.shared_memory = mode == TCP

    @override
    def unsupported(self, cell: Cell) -> str | None:
        if cell.transport == "multicast":
            return "Zenoh sends each subscriber a copy here: transport must be unicast"
        if not cell.uses_network and (why := _unsupported_in_memory(cell)):
            return why
        if self._mode == UDP and cell.reliability == "reliable":
            return "Zenoh does not repeat lost datagrams: reliability must be best-effort with zenoh-udp"
        if self._mode == UDP and cell.security != NONE:
            return "Zenoh encrypts TCP and QUIC only: security must be none with zenoh-udp, or use zenoh-quic"
        if self._mode == QUIC and cell.security == NONE:
            return "QUIC always encrypts: set security to EncryptRTPS or {rtps: ENCRYPT}, or use zenoh"
        if self._mode != UDP and cell.capture:
            return "capture counts the IP fragments of samples in datagrams, not of streams: leave it out"
        fleet = workloads.find(cell.test).load(cell).fleet
        if fleet and fleet.index_limit:
            return "sessions of Zenoh have no participant index: leave out index_limit"
        if fleet and fleet.of(cell.publishers) > MAX_PUBLISHERS and cell.discovery != SERVER:
            return f"Zenoh has a port for each of {MAX_PUBLISHERS} publishing members: give fewer, or discovery: server"
        if (len(cell.participants) if cell.graph else cell.publishers) > MAX_PUBLISHERS:
            if cell.graph:
                return f"Zenoh has a port for each of {MAX_PUBLISHERS} nodes of a graph: give at most as many"
            return f"Zenoh has a port for each of {MAX_PUBLISHERS} publishers: give at most as many"
        if cell.instances * cell.topics * cell.writers > MAX_KEYS:
            return f"each instance of a writer is a key expression: give at most {MAX_KEYS} instances in all"
        if cell.batch_bytes > MAX_BATCH_BYTES:
            return f"batches of Zenoh have at most {MAX_BATCH_BYTES} bytes: batch_bytes {cell.batch_bytes} is too large"
        if cell.batch_bytes and cell.graph:
            return "Zenoh batches the samples of all flows of a connection: leave out batch_bytes, or use cyclonedds"
        if cell.batch_bytes and cell.message_bytes != "auto":
            return (
                "batch_bytes and message_bytes both set the length of Zenoh's batches: leave one of them out"
            )
        if cell.qos and cell.middleware_config:
            return "Zenoh takes one file, and its QoS profiles are such files: leave out qos or middleware_config"
        return super().unsupported(cell)

    @override
    def unsupported_protection(self, protection: Protection) -> tuple[str, str] | None:
        parts = {name: kind for name, kind in protection.kinds.items() if kind != "NONE"}
        if parts != {"rtps": "ENCRYPT"} or protection.allow_unauthenticated or not protection.access_control:
            return (
                "Zenoh has TLS between peers with certificates, which encrypts whole connections, and access"
                f" control by topic; not: {protection.describe()}",
                "set security to EncryptRTPS, or to {rtps: ENCRYPT}",
            )
        if protection.aes_bits == 128:
            return "Zenoh always uses AES-256 here", "leave aes_bits out, or use another middleware"
        return None

    @override
    def drops(self, cell: Cell) -> bool:
        return cell.reliability == "best-effort"

    @override
    def takes_qos(self, cell: Cell) -> bool:
        # Without a profile, k8sdds-perftest sets what the reliability needs.
        return bool(cell.qos)

    @override
    def check_config(self, content: bytes, name: str) -> None:
        # The program checks the rest, with the library's own parser.
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}: is not UTF-8: {error.reason}", "see: k8sdds docs middleware-config"
            ) from error

    @override
    def refused_files(self, cell: Cell) -> str | None:
        # Without credentials, the program refuses QUIC.
        return (Zenoh() if self._mode == QUIC else self)._refused(cell)

    @override
    def _network_transport(self, family: IpFamily) -> str:
        return f"{(self._mode or 'tcp').upper()}{family.removeprefix('ip')}"

    @override
    def _peers(
        self, cell: Cell, participant: Participant, endpoints: Mapping[str, Endpoint]
    ) -> list[Endpoint]:
        # The n-th peer is the node of a graph with this number.
        if cell.graph:
            by_name = {node.name: endpoints[one.name] for one, node in cell.graph_nodes.items()}
            return [by_name[node.name] for node in graph.parse(cell.graph).nodes]
        # Subscribers connect to publishers, which need no addresses. The n-th peer is the publisher with this number.
        return [endpoints[one.name] for one in cell.participants if participant.subscribes and one.publishes]

    @override
    def service_command(self, address: str, index: int = 0) -> list[str]:
        """Return the command line of a router that forwards samples of both transports, and does nothing else."""
        own = host_and_port(address, ROUTER.port)
        return [
            ROUTER.path or "zenohd", "--listen", f"tcp/{own}", "--listen", f"udp/{own}", "--no-multicast-scouting",
            "--adminspace-permissions", "none",
        ]  # fmt: skip

    @override
    def ports(self, domain: int, processes: int, discovery: str) -> Ports:
        protocol: Literal["TCP", "UDP"] = "TCP" if self._mode == TCP else "UDP"
        if discovery == MULTICAST:
            raise InputError(
                "Zenoh answers those who search by multicast at their ephemeral ports, which no policy can name",
                "give --discovery peers or server",
            )
        if discovery == SERVER:
            return Ports(
                protocol=protocol, needs="`mode` must be `client`, so that all samples pass the router"
            )
        first = FIRST_PORT + MAX_PUBLISHERS * domain
        needs = (
            f"`listen` must name these ports, such as `{self._mode or 'tcp'}/[::]:{first}`: by default, peers listen at"
            " ephemeral ports"
        )
        return Ports(tuple(range(first, first + processes)), protocol=protocol, needs=needs)

    @override
    def ready_files(self, configuration: Configuration) -> list[ReadyFile]:
        uri = "`ZENOH_SESSION_CONFIG_URI`, with `RMW_IMPLEMENTATION=rmw_zenoh_cpp`"
        names = ". Replace NAME and TOPIC in its access control" if configuration.protected else ""
        return [
            ReadyFile(
                "zenoh.json5",
                f"Zenoh: set `ZENOH_CONFIG`; ROS 2: {uri}. Other applications have to use Zenoh's API: their DDS QoS,"
                f" DDS-XML and discovery do not apply to it{names}",
                self._config(configuration),
                {"ZENOH_CONFIG": "", "ZENOH_SESSION_CONFIG_URI": ""},
            ),
            ReadyFile(
                "zenoh-router.yaml",
                "Zenoh's router: `kubectl apply -n NAMESPACE -f zenoh-router.yaml`. Peers discover each other through"
                " it, and send samples to each other directly, as measured",
                _router_manifest(),
            ),
        ]

    def _config(self, configuration: Configuration) -> str:
        congestion, reliability = ("block", "reliable") if configuration.reliable else ("drop", "best_effort")
        size = configuration.message_bytes
        link = [f"tx: {{ batch_size: {min(size, MAX_BATCH_BYTES)} }},"] if size is not None else []
        link += _TLS if configuration.protected else []
        protocol = self._mode or ("tls" if configuration.protected else "tcp")
        at_router = protocol if configuration.protected else ROUTER.protocol
        lines = "".join(f"      {line}\n" for line in link)
        return f"""\
// Configuration of a session of Zenoh {versions.ZENOH}, with the measured settings.
{{
  mode: "peer",
  listen: {{ endpoints: ["{protocol}/[::]:0"] }},
  // The router, by which peers discover each other: zenoh-router.yaml.
  connect: {{ endpoints: ["{at_router}/{ROUTER.name}:{ROUTER.port}"] }},
  scouting: {{ multicast: {{ enabled: {str(configuration.carries_multicast).lower()} }} }},
  // For samples that must not be lost, a publisher waits while its queue is full. Otherwise it drops them, which is
  // Zenoh's default. Narrow `key_exprs` to the samples that must not be lost.
  qos: {{
    publication: [
      {{ key_exprs: ["**"], config: {{ congestion_control: "{congestion}", reliability: "{reliability}" }} }},
    ],
  }},
  transport: {{
    link: {{
{lines}    }},
    shared_memory: {{ enabled: false }},
  }},
{_ACCESS_CONTROL if configuration.protected else ""}\
  // rmw_zenoh needs timestamps for transient local durability. They were not measured:
  // timestamping: {{ enabled: true }},
}}
"""


def _unsupported_in_memory(cell: Cell) -> str | None:
    """Return which setting contradicts samples in shared memory, or None."""
    if cell.discovery == SERVER:
        return "samples in shared memory do not pass Zenoh's router: discovery must be peers or multicast"
    if cell.security != NONE:
        return "Zenoh does not encrypt shared memory: security must be none with transport shared-memory"
    if cell.realtime_priority:
        return "Zenoh's shared-memory threads set their own priority: leave out realtime_priority"
    return None


_TLS = [
    "// The files are from `k8sdds security`. The router needs such files and rules, too, and another `--listen`.",
    "tls: {",
    '  root_ca_certificate: "/etc/dds/identity_ca.pem",',
    *(
        f'  {side}_{part}: "/etc/dds/{file}",'
        for side in ("listen", "connect")
        for part, file in (("private_key", "key.pem"), ("certificate", "certificate.pem"))
    ),
    "  enable_mtls: true,",
    "  verify_name_on_connect: false,  // the certificates name participants, not hosts",
    "},",
]


_ACCESS_CONTROL = """\
  // Replace NAME and TOPIC. Trials have such rules, with their own names and topics. Without rules, each holder of a
  // certificate may write everything. NAME is that in a peer's certificate: openssl x509 -noout -subject -in FILE.
  // Add a rule `receive-…`, a subject and a policy for each group of peers that write the same topics. Peers that only
  // receive need the rules `declarations` and `send`.
  access_control: {
    enabled: true,
    default_permission: "deny",
    rules: [
      {
        id: "declarations", permission: "allow", flows: ["ingress", "egress"], key_exprs: ["**"],
        messages: [
          "declare_subscriber", "declare_queryable", "query",
          "liveliness_token", "liveliness_query", "declare_liveliness_subscriber",
        ],
      },
      {
        id: "send", permission: "allow", flows: ["egress"], key_exprs: ["**"],
        messages: ["put", "delete", "reply"],
      },
      {
        id: "receive-1", permission: "allow", flows: ["ingress"], key_exprs: ["TOPIC/**"],
        messages: ["put", "delete", "reply"],
      },
    ],
    subjects: [
      { id: "peers-1", cert_common_names: ["NAME"] },
    ],
    policies: [
      { rules: ["declarations", "send", "receive-1"], subjects: ["peers-1"] },
    ],
  },
"""


def _router_manifest() -> str:
    objects = ROUTER.objects("default", image=versions.ZENOH_IMAGE)
    for each in objects:
        del each["metadata"]["namespace"]
        if each["kind"] == "StatefulSet":
            each["spec"]["template"]["spec"]["containers"][0]["command"] = ["/zenohd"]
    return "---\n".join(map(yaml_text.dump, objects))
