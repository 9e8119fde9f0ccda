"""Create the Services of a block, wait until kube-proxy has programmed them, and count what it translates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from k8sdds import versions, workloads
from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import CORE
from k8sdds.model.services import CLUSTER_IP, HEADLESS, MEASURED, NODE_PORT, ProxyMode, ServiceSet, Via
from k8sdds.model.trial import FIRST_PUBLISHER, FIRST_SUBSCRIBER, Cell, Endpoint
from k8sdds.networks import find
from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds.cluster import installed, translations
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.pod_pool import PodPlace, PodPool, ReadyPod
from k8sdds.testbeds.cluster.pods import PERFTEST, Slot
from k8sdds.testbeds.cluster.translations import Connection, Counters
from k8sdds.testbeds.evidence import Compared, Reading
from k8sdds.workloads.transactions import PORT, PROGRAM

TIMEOUT_S, TIMEOUT_PER_SERVICE_S = 60, 0.1
"""How long kube-proxy may take until it has programmed all Services."""
POLL_S = 0.5
CHECK_S = "0.01"
"""How long the client of a check opens connections."""
_TRANSACTIONS = PERFTEST.replace("k8sdds-perftest", PROGRAM)
_CLIENT = (
    '"$@" & client=$!; (sleep 5; kill $client) >/dev/null 2>&1 & wait $client; code=$?; kill $!; exit $code'
)
"""A shell script that runs a command for at most 5 s: without rules, a connection is neither opened nor refused."""
_SERVER = f"""
{_TRANSACTIONS} server --address "$0" --port {PORT} --bytes 1 --new-connections & server=$!
until grep -qs ":{PORT:04X} .* 0A " /proc/net/tcp /proc/net/tcp6; do kill -0 $server || exit 1; sleep 0.05; done
echo ready >&2
read -r _
kill $server
"""
"""A shell script that runs the server until its standard input ends."""
_FAMILIES = {True: "IPv6", False: "IPv4"}


@dataclass(frozen=True)
class _Pods:
    """The pods of client and server that Services lead between."""

    client: ReadyPod
    client_slot: Slot
    server: ReadyPod
    server_slot: Slot


class Services:
    """The Services in a campaign's namespace, all with one endpoint: the server's pod."""

    def __init__(self, namespace: CampaignNamespace, pods: PodPool, probes: NodeProbes) -> None:
        self._client = namespace.client
        self._namespace = namespace
        self._pods = pods
        self._probes = probes
        self._created: dict[str, dict[str, Any]] = {}
        """The Services that exist, by name, as the API server returned them."""
        self._complete: set[str] = set()
        """Names of those that have an EndpointSlice."""
        self._provided: tuple[ServiceSet, str] | None = None
        """What was requested last and is programmed, and the server's pod."""
        self._connection: Connection | None = None
        """How the client of the next trial reaches the server."""
        self.unobserved = ""
        """Why the rules of the client's node cannot be read; empty if they can."""

    @cached_property
    def mode(self) -> ProxyMode | None:
        """Mode of the cluster's kube-proxy; None if unknown."""
        return installed.proxy_mode(self._client)

    # -- creating them ----------------------------------------------------------------------------------

    def provide(self, cell: Cell, slots: Mapping[str, Slot]) -> None:
        """Create the Services of a cell, delete others, and wait until they are programmed. The pods must be ready."""
        wanted = workloads.find(cell.test).services(cell)
        if wanted is None:
            self.remove()
            return
        between = self._between(slots)
        if self._provided == (wanted, between.server.name):
            return
        self._provided = None
        pod = self._pods.watch.pod(between.server.name)
        if pod is None:
            raise PrerequisiteError(f"pod {between.server.name} was deleted", "run it again")
        # The measured one first. They are unique for a kind and a server's pod.
        suffix = pod["metadata"]["uid"][:8]
        fillers = (f"service-{number}-{suffix}" for number in range(1, wanted.count))
        names = [f"service-{wanted.via}-{suffix}", *fillers]
        self._delete([name for name in self._created if name not in names])

        def create(name: str) -> None:
            via = wanted.via if name == names[MEASURED] else CLUSTER_IP
            if name not in self._created:
                self._created[name] = self._create(name, via, pod, between.server)
            slice_ = endpoint_slice(self._created[name], between.server.node, between.server.address)
            objects.create(self._client, [slice_])
            self._complete.add(name)

        in_threads(create, [name for name in names if name not in self._complete])
        self._await_programmed(wanted, between, names)
        self._provided = (wanted, between.server.name)

    def _create(self, name: str, via: Via, pod: Mapping[str, Any], server: ReadyPod) -> dict[str, Any]:
        body = service(name, self._namespace.name, via, pod, server.address, self._namespace.labels)
        try:
            return self._client.create(self._path, body)
        except PrerequisiteError as error:
            full = "full" in error.message or "already allocated" in error.message
            raise PrerequisiteError(
                f"cannot create Service {name}: {error.message}",
                "use fewer `services`, or a cluster with more addresses of Services and node ports"
                if full
                else "check this user's rights (k8sdds init rights), and the namespace's quotas and admission policies",
            ) from error

    @property
    def _path(self) -> str:
        return f"{CORE}/namespaces/{self._namespace.name}/services"

    def remove(self) -> None:
        """Delete all Services; Kubernetes deletes their slices."""
        self._provided = self._connection = None
        self._delete(list(self._created))

    def _delete(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            self._client.delete(f"{self._path}/{name}")
            del self._created[name]
            self._complete.discard(name)

        in_threads(delete, names)

    # -- waiting for kube-proxy -------------------------------------------------------------------------

    def _await_programmed(self, wanted: ServiceSet, between: _Pods, names: Sequence[str]) -> None:
        """Wait until the client's node has the rules, and the client reaches the server through them."""
        deadline = time.monotonic() + TIMEOUT_S + TIMEOUT_PER_SERVICE_S * wanted.count
        while missing := self._missing_rules(between, names) or self._unreachable(wanted, between, names):
            if time.monotonic() > deadline:
                raise PrerequisiteError(
                    f"kube-proxy has not programmed {wanted.count} Services on node {between.client.node}: {missing}",
                    "check that kube-proxy, or the program that replaces it, is ready on this node:"
                    " kubectl --namespace kube-system get pods -o wide",
                )
            time.sleep(POLL_S)

    def _missing_rules(self, between: _Pods, names: Sequence[str]) -> str:
        """Return how many rules are missing on the client's node; empty if none is, or if they cannot be read."""
        addresses = self._addresses(names)
        found = self._programmed(between, addresses)
        if found is None or len(found) == len(addresses):
            return ""
        return f"the node has the rules of {len(found)} of {len(addresses)}"

    def _addresses(self, names: Iterable[str]) -> dict[str, str]:
        """Return the cluster IPs of these Services, each with its name."""
        addresses = {self._created[name]["spec"]["clusterIP"]: name for name in names}
        return {address: name for address, name in addresses.items() if address != "None"}

    def _programmed(self, between: _Pods, addresses: Mapping[str, str]) -> list[str] | None:
        """Return which addresses the client's node translates, in the order of its rules; None if unreadable."""
        printed = self._on_node(
            between.client.node, translations.rules_command(":" in between.server.address)
        )
        return None if printed is None else translations.programmed(printed, addresses)

    def _on_node(self, node: str, argv: Sequence[str]) -> str | None:
        """Run a command on a node and return its output; None if it cannot run, with the reason in `unobserved`."""
        try:
            printed = self._probes.counting(node).run(argv).decode(errors="replace")
        except PrerequisiteError as error:
            self.unobserved = error.message
            return None
        self.unobserved = ""
        return printed

    def _unreachable(self, wanted: ServiceSet, between: _Pods, names: Sequence[str]) -> str:
        """Return why the client does not reach the server by the measured and by the last Service; empty if it does."""
        targets = {self._target(wanted, between, names[MEASURED])}
        if len(names) > 1:
            targets.add((self._created[names[-1]]["spec"]["clusterIP"], PORT))
        server = PodPlace(self._pods, between.server_slot)
        with server.running(["sh", "-c", _SERVER, between.server.address]) as stop:
            refusals = (self._refusal(between, *target) for target in sorted(targets))
            refusal = next(filter(None, refusals), "")
            stop()
        return refusal

    def _refusal(self, between: _Pods, address: str, port: int) -> str:
        """Return why the client cannot connect to an address; empty if it can."""
        argv = [_TRANSACTIONS, "client", "--address", address, "--port", str(port), "--new-connections"]
        argv += ["--bytes", "1", "--warm-up", "0", "--time", CHECK_S]
        done = self._pods.run(between.client_slot, ["sh", "-c", _CLIENT, "check", *argv])
        reason = reading.one_line(done.stderr.decode(errors="replace"), 200) or f"exit code {done.code}"
        return f"{address} port {port}: {reason}" if done.code else ""

    # -- for a trial ------------------------------------------------------------------------------------

    def through_service(
        self, cell: Cell, slots: Mapping[str, Slot], endpoints: dict[str, Endpoint]
    ) -> dict[str, Endpoint]:
        """Return the endpoints of a trial with the address of the Service by which its client reaches the server.

        Among Services with cluster IPs, this is the last one in the order of the rules, which kube-proxy in iptables
        mode chooses at random: then a new connection passes the rules of all of them, as in the lab.
        """
        wanted = workloads.find(cell.test).services(cell)
        if wanted is None:
            return endpoints
        self.provide(cell, slots)
        between = self._between(slots)
        name = next(name for name in self._created if name.startswith(f"service-{wanted.via}-"))
        if wanted.via == CLUSTER_IP and wanted.count > 1:
            addresses = self._addresses(self._created)
            found = self._programmed(between, addresses)
            name = addresses[found[-1]] if found else name
        target, port = self._target(wanted, between, name)
        self._connection = Connection(
            f"{self._namespace.name}/{name}",
            between.client.address,
            target,
            port,
            between.server.address,
            PORT,
        )
        server = FIRST_SUBSCRIBER.name
        return endpoints | {server: replace(endpoints[server], service=(target, port))}

    def _target(self, wanted: ServiceSet, between: _Pods, name: str) -> tuple[str, int]:
        spec = self._created[name]["spec"]
        if wanted.via == NODE_PORT:
            return between.client.node_address, int(spec["ports"][0]["nodePort"])
        return (between.server.address if wanted.via == HEADLESS else str(spec["clusterIP"])), PORT

    def translations(self, cell: Cell, slots: Mapping[str, Slot]) -> list[Reading]:
        """Return the readings of the translations on the client's node in the next trial. Empty without Services."""
        connection = self._connection
        if workloads.find(cell.test).services(cell) is None or connection is None:
            return []
        node = self._between(slots).client.node
        replaced = find(cell.network).replaces_kube_proxy(cell.network_options)

        def read() -> Counters | None:
            printed = self._on_node(node, translations.counters_command(connection))
            return None if printed is None else translations.counters(printed)

        def fields(
            before: Counters | None, read: Callable[[], Counters | None], _: object
        ) -> Mapping[str, Any]:
            after = None if before is None else read()
            seen: dict[str, Any] = {"service_unobserved": self.unobserved}
            if before is not None and after is not None:
                seen = translations.evidence(connection, before, after, replaced)
            by_kube_proxy = not replaced or seen.get("service_connections") or seen.get("service_tracked")
            return seen | {"proxy_mode": self.mode if by_kube_proxy else None}

        return [Compared(read, fields)]

    def _between(self, slots: Mapping[str, Slot]) -> _Pods:
        client, server = slots[FIRST_PUBLISHER.name], slots[FIRST_SUBSCRIBER.name]
        return _Pods(self._pods.pod(client), client, self._pods.pod(server), server)


def service(
    name: str, namespace: str, via: Via, pod: Mapping[str, Any], address: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return a Service without a selector, of the kind `via`, with the IP family of the server's address."""
    owner = {key: pod["metadata"][key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", **owner}],
        },
        "spec": {
            "type": "NodePort" if via == NODE_PORT else "ClusterIP",
            **({"clusterIP": "None"} if via == HEADLESS else {}),
            "ports": [{"port": PORT, "targetPort": PORT, "protocol": "TCP"}],
            "ipFamilies": [_FAMILIES[":" in address]],
            "ipFamilyPolicy": "SingleStack",
        },
    }


def endpoint_slice(created: Mapping[str, Any], node: str, address: str) -> dict[str, Any]:
    """Return the slice with the endpoint of a Service that the API server `created`: the server's pod."""
    metadata = created["metadata"]
    owner = {key: metadata[key] for key in ("name", "uid")}
    of_slice = {
        "kubernetes.io/service-name": metadata["name"],
        "endpointslice.kubernetes.io/managed-by": versions.MANAGED_BY,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**metadata["labels"], **of_slice},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", **owner}],
        },
        "addressType": _FAMILIES[":" in address],
        "endpoints": [{"addresses": [address], "nodeName": node, "conditions": {"ready": True}}],
        "ports": [{"port": PORT, "protocol": "TCP"}],
    }
