"""Verify the NetworkPolicies of an application in test pods on a cluster: its flows match, and no others pass."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path

from k8sdds import middleware
from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model import reason
from k8sdds.model.application import Application
from k8sdds.model.ip_families import family_of
from k8sdds.model.measurement import Launch
from k8sdds.model.reason import Reason
from k8sdds.model.trial import Cell, Endpoint, Participant
from k8sdds.networks import NETWORKS
from k8sdds.recommend.network_policy import (
    COMPONENT,
    PART_OF,
    Communication,
    peers,
    policies,
    require_multicast,
)
from k8sdds.system.errors import InputError, PrerequisiteError, Problem, RequirementsNotMet
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds import probing
from k8sdds.testbeds.cluster import matching, namespace, pods
from k8sdds.testbeds.cluster.discovery import DiscoveryServers
from k8sdds.testbeds.cluster.exec import ParticipantExec
from k8sdds.testbeds.cluster.namespace import CampaignLease, CampaignNamespace
from k8sdds.testbeds.cluster.nodes import usable
from k8sdds.testbeds.cluster.pod_pool import PodPlace, PodPool
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.cluster.testbed import ClusterTestbed
from k8sdds.workloads.pod_start import PAIR

ENFORCED_WITHIN_S, POLL_S = 60, 2.0
"""How long the network's agents may take until they enforce the policies."""
STRANGER, EARLIER_STRANGER = "a stranger", "an earlier stranger"
"""Pods without labels of the application. Connection tracking admits what the earlier one did without policies."""
_NOT_ADMITTED = {reason.NO_MATCH, reason.PEER_LOST, reason.NO_SAMPLES}


@dataclass(frozen=True)
class Probe:
    """Datagrams between two test pods that no policy admits."""

    sender: str
    receiver: str
    port: int

    def __str__(self) -> str:
        return f"{self.sender} to {self.receiver}, UDP {self.port}"


@dataclass(frozen=True)
class Finding:
    """What was sent while the policies existed."""

    what: str
    result: str
    admitted: bool
    """Whether the policies admit it."""
    passed: bool

    def __str__(self) -> str:
        verdict = "as stated" if self.admitted == self.passed else "NOT AS STATED"
        return f"{'admitted' if self.admitted else 'refused':8}  {self.what}: {self.result} ({verdict})"


def probes(application: Application, used: Communication) -> list[Probe]:
    """Return for each component a probe of a stranger, of a peer at another port, and of one that is no peer.

    The port of the middleware is only admitted for peers; a datagram at a TCP port is never.
    """
    own, shared = used.ports, peers(application)
    port = next(iter(own.from_peers), probing.PORT) if own.protocol == "UDP" else probing.PORT
    found = []
    for component, related in shared.items():
        found.append(Probe(STRANGER, component, port))
        found += [Probe(each, component, probing.PORT) for each in related[:1]]
        others = [each for each in shared if each not in (component, *related)]
        found += [Probe(each, component, port) for each in others[:1]]
    return found


def check(used: Communication) -> None:
    """Check that test pods can communicate in this way. Raises InputError."""
    if not middleware.find(used.middleware).reports_match:
        raise InputError(
            f"--verify cannot run {used.middleware}", "give another --middleware with the same ports"
        )
    if used.group is not None:
        raise InputError("test pods use the multicast group of DDS", "leave out --group")


def on_installed(used: Communication, installed: str) -> Communication:
    """Return how participants communicate on the installed network.

    Raises InputError if the user named another network, or if the installed one carries no multicast that they need.
    """
    if used.network not in (None, installed):
        raise InputError(
            f"--network is {used.network}, but the network of the cluster is {installed}",
            "leave out --network, or select the other cluster with --testbed or --kubeconfig",
        )
    if installed not in NETWORKS:
        return used
    require_multicast(used, NETWORKS[installed])
    return replace(used, network=installed)


def disturbed_campaigns(client: KubernetesClient) -> list[Problem]:
    """Return the campaigns on the cluster whose measurements the test pods would disturb."""
    return [
        Problem(
            f"another campaign is running on this cluster: {other.describe()}; test pods would disturb it",
            "wait until it ends",
        )
        for other in namespace.running(client)
    ]


def extent(application: Application, used: Communication) -> str:
    """Return how many pods, matches and probes the verification has."""
    servers = len(used.service.servers("")) if used.service else 0
    pods_ = len(peers(application)) + len((STRANGER, EARLIER_STRANGER)) + servers
    matches = len(_pairs(application)) + 1  # and one with the stranger
    return (
        f"{pods_} test pods; with the policies, {matches} matches and {len(probes(application, used))} probes"
    )


def _pairs(application: Application) -> list[tuple[str, ...]]:
    """Return the pairs of components that share a flow, each once."""
    shared = peers(application)
    return list(dict.fromkeys(tuple(sorted((a, b))) for a in shared for b in shared[a]))


def verify(
    testbed: ClusterTestbed,
    title: str,
    application: Application,
    used: Communication,
    show: Callable[[str], None],
    created: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Create test pods and the policies in a namespace of their own, show what passes, and delete all of it.

    `created` is called with the name of the namespace as soon as it exists. Raises RequirementsNotMet if the policies
    are not enforced, or refuse a flow of the application.
    """
    show(extent(application, used))
    with _created(testbed, title, application, used, created) as test:
        show(f"without policies, all pods of namespace {test.namespace.name} must reach each other")
        test.require_connected()
        own = policies(application, used)
        for each in own:
            each["metadata"]["namespace"] = test.namespace.name
        objects.create(testbed.client, own)
        show(f"{len(own)} policies are created; the network has {ENFORCED_WITHIN_S} s to enforce them")
        test.await_enforcement()
        findings = []
        for finding in test.findings():
            show(str(finding))
            findings.append(finding)
    conclude(findings, testbed.installed.title)
    return findings


def conclude(findings: Sequence[Finding], network: str) -> None:
    """Raise RequirementsNotMet unless exactly what policies admit has passed."""
    refused = [each for each in findings if not each.admitted]
    passed = [each for each in refused if each.passed]
    missing = [each for each in findings if each.admitted and not each.passed]
    if refused and passed == refused:
        raise RequirementsNotMet(
            f"{network} does not enforce policies: all that they refuse has passed",
            "use a network that does: k8sdds docs network-policy",
        )
    wrong = []
    if passed:
        wrong.append(
            f"enforces only a part: {len(passed)} of {len(refused)} connections that no policy admits passed"
        )
    if missing:
        wrong.append(
            f"refuses {len(missing)} of {len(findings) - len(refused)} flows that the policies admit"
        )
    if wrong:
        raise RequirementsNotMet(
            f"{network} {'; and it '.join(wrong)}",
            "check that the network's agents are ready; then report the output and the policies",
        )


@contextlib.contextmanager
def _created(
    testbed: ClusterTestbed,
    title: str,
    application: Application,
    used: Communication,
    created: Callable[[str], None],
) -> Iterator[VerificationPods]:
    with contextlib.ExitStack() as steps:  # which runs all, the last one first, also after an error
        folder = Path(steps.enter_context(tempfile.TemporaryDirectory(prefix="k8sdds-policy-")))
        logins = testbed.logins(())
        own = namespace.create(testbed.client, title, None, False, created=created, logins=logins)
        steps.callback(own.delete)
        lease = CampaignLease(own)
        lease.acquire()
        steps.callback(lease.release)
        test = VerificationPods(testbed, own, application, used, folder)
        steps.callback(test.pool.close)
        test.start()
        yield test


class VerificationPods:
    """A pod for each component of an application, two strangers, and the discovery service."""

    def __init__(
        self,
        testbed: ClusterTestbed,
        own: CampaignNamespace,
        application: Application,
        used: Communication,
        folder: Path,
    ) -> None:
        nodes = usable(testbed.nodes)
        if not nodes:
            raise PrerequisiteError("no node of the cluster can run pods", "see: kubectl describe nodes")
        image, tolerated = testbed.selected.image, testbed.tolerations
        self.namespace, self._application, self._used, self._folder = own, application, used, folder
        self._network = testbed.installed.name
        self.pool = PodPool(own, image, pods.memory_bytes([]), tolerations=tolerated)
        self._servers = DiscoveryServers(own, image, tolerated)
        self._probes = probes(application, used)
        self._matches = count()
        labels = {
            component: ((PART_OF, application.name), (COMPONENT, component))
            for component in peers(application)
        } | {STRANGER: (), EARLIER_STRANGER: ()}
        self._slots = {
            name: Slot(f"test{number}", "test", nodes[number % len(nodes)].name, False, labels=of_pod)
            for number, (name, of_pod) in enumerate(labels.items())
        }

    def start(self) -> None:
        """Wait until all pods and the discovery service are ready."""
        self.pool.ensure(self._slots.values())
        self._servers.provide(self._cell)

    @cached_property
    def _cell(self) -> Cell:
        """What two pods exchange."""
        address = self.pool.pod(self._slots[STRANGER]).address
        return matching.cell(
            network=self._network, middleware=self._used.middleware, discovery=self._used.discovery,
            ip_families=(family_of(address),),
        )  # fmt: skip

    def require_connected(self) -> None:
        """Check that without policies, what they are to refuse passes. Raises PrerequisiteError."""
        component = next(iter(peers(self._application)))
        found = self._match(component, EARLIER_STRANGER)
        missing = [] if isinstance(found, matching.Match) else [f"{component}, {STRANGER}: {found.text}"]
        missing += [str(each) for each in self._unanswered(self._probes)]
        if missing:
            raise PrerequisiteError(
                f"without policies, the network does not connect all pods: {'; '.join(missing)}",
                "check the network's agents, policies of the whole cluster, and multicast with --discovery multicast",
            )

    def await_enforcement(self) -> None:
        """Wait until nothing passes that policies refuse, at most as long as agents may take."""
        deadline = time.monotonic() + ENFORCED_WITHIN_S
        passing = self._probes
        while passing and time.monotonic() < deadline:
            unanswered = self._unanswered(passing)
            passing = [each for each in passing if each not in unanswered]
            time.sleep(POLL_S if passing else 0)

    def findings(self) -> Iterator[Finding]:
        """Yield the result of each flow, of a stranger that tries to take part, and of each probe."""
        for first, second in _pairs(self._application):
            yield self._finding(first, second, admitted=True)
        yield self._finding(next(iter(peers(self._application))), STRANGER, admitted=False)
        unanswered = self._unanswered(self._probes)
        for probe in self._probes:
            answered = probe not in unanswered
            yield Finding(str(probe), "answered" if answered else "not answered", False, answered)

    def _finding(self, first: str, second: str, admitted: bool) -> Finding:
        found = self._match(first, second)
        if isinstance(found, Reason):
            return Finding(f"{first}, {second}", found.text, admitted, False)
        return Finding(f"{first}, {second}", f"matched, {found.received} samples arrived", admitted, True)

    def _match(self, first: str, second: str) -> matching.Match | Reason:
        """Run a publisher and a subscriber in two pods. Raises PrerequisiteError if they fail for another reason."""
        pair = dict(zip(PAIR, (first, second), strict=True))
        ready = {participant: self.pool.pod(self._slots[name]) for participant, name in pair.items()}
        programs = matching.Programs(
            self._cell,
            {participant: pod.name for participant, pod in ready.items()},
            {
                participant.name: Endpoint(pod.address, pod.interface, None, pod.mtu_bytes)
                for participant, pod in ready.items()
            },
            self._used.domain,
            self._servers.addresses(self._cell),
        )
        found = matching.match(programs, self._folder / str(next(self._matches)), self._execution(pair))
        # A participant that does not reach a router fails by its middleware.
        refused = _NOT_ADMITTED | ({"middleware"} if self._used.service else set())
        if isinstance(found, Reason) and found.code not in refused:
            raise PrerequisiteError(f"{first}, {second}: {found.text}", "retry; see: kubectl get events")
        return found

    def _execution(self, pair: dict[Participant, str]) -> matching.Execute:
        own = self.namespace

        def execute(pod: str, launch: Launch, deadline_s: float) -> ParticipantExec:
            container = self._slots[pair[launch.participant]].participant
            return ParticipantExec(own.client, own.name, pod, launch, deadline_s, container=container)

        return execute

    def _unanswered(self, asked: Sequence[Probe]) -> list[Probe]:
        """Return the probes of which no datagram is answered."""
        targets = list(dict.fromkeys((each.receiver, each.port) for each in asked))
        return [
            each
            for found in in_threads(lambda target: self._unanswered_of(target, asked), targets)
            for each in found
        ]

    def _unanswered_of(self, target: tuple[str, int], asked: Sequence[Probe]) -> list[Probe]:
        receiver, port = target
        token, address = probing.new_token(), self.pool.pod(self._slots[receiver]).address
        own = [each for each in asked if (each.receiver, each.port) == target]
        with probing.answering(PodPlace(self.pool, self._slots[receiver]), token, port=port):
            reports = [
                probing.ask(
                    PodPlace(self.pool, self._slots[each.sender]), address, token, probing.TIMEOUT_S,
                    "--count", str(probing.DATAGRAMS), port=port,
                )
                for each in own
            ]  # fmt: skip
        return [each for each, report in zip(own, reports, strict=True) if not report.answered]
