"""One network of a cluster replaced by another: the old one removed without a trace, which is proven, the
new one installed and awaited, and every pod that is not on the nodes' own network made again.

Everything is read from the machines, so a switch that was interrupted is finished by the next one.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from k8sdds import versions
from k8sdds.deploy import actions, network_install, profiles, smoke_test
from k8sdds.deploy.network_switch import footprint, readiness
from k8sdds.deploy.network_switch.cleanup import sweep
from k8sdds.deploy.network_switch.footprint import NetworkLeftover, NodeState
from k8sdds.kubernetes import apply as kube
from k8sdds.kubernetes.apply import Object
from k8sdds.kubernetes.kubectl import KINDS, ClusterNode, Kubectl
from k8sdds.model.profile import PodNetwork, Profile
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.ssh import Connections, Done, Host, Result

READY_S = 180
"""How long the new network may take, images included."""
REMOVE_S = 90
PODS_S = 180
IMAGES_S = 600

Said = Callable[[str], None]


@dataclass(frozen=True)
class Switched:
    """What a switch did."""

    network: str
    changed: bool
    removed: dict[str, list[str]]
    """Node → what was there of other networks and is gone."""
    left: dict[str, list[str]]
    """Node → what is there of other networks: nothing, as a second look has shown."""
    recreated: tuple[str, ...]
    """Pods that were made again, as NAMESPACE/NAME."""
    took_s: float


def current(control: Kubectl) -> str:
    """The installed network; PrerequisiteError where there is none, or several after an interrupted switch."""
    found = sorted(control.networks())
    if len(found) != 1:
        what = f"several networks: {', '.join(found)}" if found else "no network of k8sdds"
        raise PrerequisiteError(f"the cluster has {what}", "k8sdds network switch PROFILE NETWORK")
    return found[0]


def switch(
    profile: Profile, network: PodNetwork, connections: Connections, said: Said = lambda line: None
) -> Switched:
    """Make this the network of the profile's cluster, on all its nodes.

    Raises InputError where it does not fit the profile, PrerequisiteError where a machine or the cluster fails or
    something of the old network is left; then the same call again goes on.
    """
    return _Switch(profile, network, connections, said).run()


def prove(profile: Profile, connections: Connections) -> None:
    """The smoke test on the profile's network; PrerequisiteError where datagrams do not pass."""
    install = network_install.install(profile, profiles.password(profile))
    names = sorted(node.name for node in profile.nodes)
    host = connections.hosts[profile.control_plane.name]
    proven = smoke_test.proof(install.name, install.manifests, names)
    script = actions.PRELUDE + smoke_test.script(names, install.name, proven)
    done = host.run(script, timeout_s=PODS_S)
    if done.code:
        raise PrerequisiteError(
            f"{host.name}: the smoke test on {install.name} failed: {(done.err or done.out).strip()}",
            "a firewall between the machines? see docs/troubleshooting.md",
        )


class _Switch:
    def __init__(self, profile: Profile, network: PodNetwork, connections: Connections, said: Said) -> None:
        self.profile = network_install.with_network(profile, network)
        self.install = network_install.install(self.profile, profiles.password(self.profile))
        self.spec = network_install.cluster_install(network.name)
        self.objects = kube.stamped(self.install.manifests, network.name)
        self.connections = connections
        self.said = said
        self.control = Kubectl(connections.hosts[profile.control_plane.name])
        self.nodes: list[ClusterNode] = []

    def run(self) -> Switched:
        began = time.monotonic()
        self.nodes = self._known_nodes()
        removed: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        left = self._strange() if self._installed() else None
        changed = left is None or any(left.values())
        if changed:
            self._fetch_images()
            removed = self._remove()
            self.said(f"installing {self.install.name}")
            self.control.apply(self.objects)
        self._await()
        recreated = self._recreate()
        # Where nothing was done, the first look has shown that nothing else is there.
        changed = changed or bool(recreated)
        return Switched(
            network=self.install.name,
            changed=changed,
            removed=removed,
            left=self._prove_nothing_else() if changed or left is None else left,
            recreated=recreated,
            took_s=time.monotonic() - began,
        )

    # -- what is there ---------------------------------------------------------------------------------------

    def _known_nodes(self) -> list[ClusterNode]:
        found = self.control.nodes()
        strange = [node.name for node in found if node.name not in self.connections.hosts]
        if strange:
            raise InputError(
                f"the cluster has nodes that the profile does not name: {', '.join(strange)}",
                "add them to the profile, or remove them: kubectl delete node",
            )
        return found

    def _installed(self) -> bool:
        """Whether exactly the wanted objects are there, of this network and of no other."""
        own = [one for one in self.objects if one["kind"] != "Namespace"]
        return _hashes(self._objects()) == _hashes(own)

    def _objects(self) -> list[Object]:
        return self.control.get(f"daemonsets,{','.join(KINDS)} --all-namespaces -l {versions.NETWORK_LABEL}")

    def _look(self) -> dict[str, NodeState]:
        """What the probe sees on every node."""
        script = footprint.probe()

        def look(host: Host) -> NodeState:
            return footprint.parse(host.run(script).out)

        return self._each(look)

    def _each(self, work: Callable[[Host], Result]) -> dict[str, Result]:
        return self.connections.all(work, [node.name for node in self.nodes])

    def _left(
        self, seen: Mapping[str, NodeState], names: Sequence[str] | None = None
    ) -> dict[str, list[NetworkLeftover]]:
        addresses = [node.address for node in self.nodes]
        pods = self.profile.kubernetes.pod_cidr
        return {name: footprint.left(one, addresses, pods, names) for name, one in seen.items()}

    def _fetch_images(self) -> None:
        """Have the new network's images on every node before anything is changed: without a network there is
        no other chance to say that one cannot be had."""
        lines = [
            f"ctr -n k8s.io images ls -q | grep -qxF {image} || ctr -n k8s.io images pull {image} >/dev/null"
            f" || {{ echo cannot get {image} >&2; exit 1; }}\n"
            for image in self.install.images
        ]
        lines += [_has(image, program) for image, program in self.install.programs]
        script = "".join(["PATH=$PATH:/usr/local/bin\n", *lines])

        def fetch(host: Host) -> Done:
            done = host.run(script, timeout_s=IMAGES_S)
            if done.code:
                lines = done.err.strip().splitlines()[-2:]
                raise PrerequisiteError(
                    "\n".join([f"{host.name}: cannot run {self.install.name}:", *lines]),
                    "nothing was changed. Can that machine reach the registry? One of k8sdds.local comes with"
                    f" `k8sdds deploy {self.profile.name}`",
                )
            return done

        self.said(f"looking for images of {self.install.name}")
        self._each(fetch)

    # -- the old one -----------------------------------------------------------------------------------------

    def _remove(self) -> dict[str, list[str]]:
        """Remove every network, objects first; what was found on each node."""
        names = sorted({one["metadata"]["labels"][versions.NETWORK_LABEL] for one in self._objects()})
        before = self._look()
        for node, seen in before.items():
            blind = footprint.cannot_see(seen, names)
            if blind:
                raise PrerequisiteError(
                    f"{node}: without {' and '.join(blind)} nobody can see if {', '.join(names)} is gone",
                    f"on that machine: apt-get install {' '.join(_PACKAGES.get(one, one) for one in blind)}",
                )
        for name in names:
            self.said(f"removing {name}")
            self.control.remove_network(name, REMOVE_S)
        found = self._left(before)
        addresses, pods = [node.address for node in self.nodes], self.profile.kubernetes.pod_cidr
        swept = self._each(lambda host: sweep(host, addresses, pods))
        for node in self.control.nodes():
            prefixes = [prefix for signs in footprint.all_footprints() for prefix in signs.node_annotations]
            self.control.clean_node(node, prefixes)
        left = {node: one for node, one in self._left(self._look()).items() if one}
        if left:
            lines = [f"{node}: {trace}" for node, some in left.items() for trace in some]
            said = [f"{node}: {line}" for node, one in swept.items() for line in one.said]
            raise PrerequisiteError(
                "\n".join([f"of {', '.join(names) or 'an old network'} is left:", *lines, *said]),
                "remove it by hand, or reboot that machine; then the same command again",
            )
        return {node: [str(trace) for trace in some] for node, some in found.items()}

    # -- the new one -----------------------------------------------------------------------------------------

    def _await(self) -> None:
        deadline = time.monotonic() + READY_S
        for one in self.install.daemonsets:
            kind, namespace, name = one.split("/")
            words = f"rollout status {kind}/{name} -n {namespace} --timeout={READY_S}s"
            if self.control.run(words, timeout_s=READY_S + 10).code:
                raise self._not_ready(["its agents do not start"])
        while missing := self._missing():
            if time.monotonic() > deadline:
                raise self._not_ready(missing)
            time.sleep(0.3)
        left_s = max(10, round(deadline - time.monotonic()))
        words = f"wait node --all --for=condition=Ready --timeout={left_s}s"
        done = self.control.run(words, timeout_s=left_s + 10)
        if done.code:
            raise self._not_ready(done.err.strip().splitlines())

    def _missing(self) -> list[str]:
        """What nodes still lack of the network."""
        present = self.spec.ready
        lines = []
        for name, seen in self._look().items():
            node = next(node for node in self.nodes if node.name == name)
            lines += [f"{name} lacks {what}" for what in readiness.lacks(present, node, seen, self.nodes)]
        if present.connection_check and not lines:
            inside, *command = present.connection_check
            for pod in self.control.agents(self.spec.daemonset):
                name = pod["metadata"]["name"]
                done = self.control.run(
                    f"exec -n {versions.NETWORK_NAMESPACE} {name} -c {inside} -- {shlex.join(command)}"
                )
                if done.code:
                    said = (done.out or done.err).strip()
                    lines.append(f"{pod['spec'].get('nodeName')} is not connected: {said}")
        return lines

    def _not_ready(self, missing: Sequence[str]) -> PrerequisiteError:
        daemonset = self.spec.daemonset
        reasons = self.control.reasons(daemonset) or self.control.logs(daemonset)
        return PrerequisiteError(
            "\n".join([f"{self.install.name} is not ready:", *missing, *reasons]),
            f"see docs/troubleshooting.md; and k8sdds logs {self.profile.name}; then the same command again",
        )

    # -- the pods --------------------------------------------------------------------------------------------

    def _recreate(self) -> tuple[str, ...]:
        """Make again every pod whose network was made before this one was installed."""
        since = self.control.networks()[self.install.name]["metadata"]["creationTimestamp"]
        old = readiness.older(self.control.get("pods --all-namespaces"), since)
        names = tuple(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in old)
        if old:
            self.said(f"making {len(old)} pods again")
            gone = [_reference(pod) for pod in old]
            words = f"delete -f - --ignore-not-found --timeout={PODS_S}s"
            self.control.output("pods do not end", words, kube.list_document(gone).encode(), PODS_S + 10)
            alone = [readiness.again(pod) for pod in old if readiness.by_itself(pod)]
            if alone:
                self.control.output(
                    "cannot make pods again", "create -f -", kube.list_document(alone).encode()
                )
        deadline = time.monotonic() + PODS_S
        pods = self.profile.kubernetes.pod_cidr
        while waiting := readiness.without_network(self.control.get("pods --all-namespaces"), pods):
            if time.monotonic() > deadline:
                raise PrerequisiteError(
                    "\n".join([f"pods get no address of {self.install.name}:", *waiting]),
                    "see docs/troubleshooting.md; then the same command again",
                )
            time.sleep(0.5)
        if old:
            words = f"wait deployment --all -n {versions.KUBE_SYSTEM_NAMESPACE} --for=condition=Available --timeout={PODS_S}s"
            self.control.output("the cluster's own pods do not become ready", words, timeout_s=PODS_S + 10)
        return names

    def _strange(self) -> dict[str, list[str]]:
        """What is there of other networks than the wanted one, node by node."""
        seen = self._look()
        every, own = self._left(seen), self._left(seen, [self.install.name])
        return {node: [str(trace) for trace in every[node] if trace not in own[node]] for node in every}

    def _prove_nothing_else(self) -> dict[str, list[str]]:
        """What is there of other networks, which must be nothing."""
        left = self._strange()
        lines = [f"{node}: {trace}" for node, some in left.items() for trace in some]
        if lines:
            raise PrerequisiteError(
                "\n".join([f"beside {self.install.name} there is of another network:", *lines]),
                "the same command again removes it",
            )
        return left


_PACKAGES = {"nft": "nftables", "ss": "iproute2"}
"""Debian packages of programs that are not called like them."""


def _has(image: str, program: str) -> str:
    """Shell words that fail where an image on a node has no program of this name."""
    return f"""\
work=$(mktemp -d)
ctr -n k8s.io images mount {image} $work >/dev/null && found=$(find $work -name {program} | head -n 1)
ctr -n k8s.io images unmount --rm $work >/dev/null
rmdir $work
[ -n "$found" ] || {{ echo {image} has no {program} >&2; exit 1; }}
"""


def _hashes(objects: Sequence[Object]) -> dict[str, str]:
    """Identity → hash as stamped, empty for what is not stamped."""
    return {
        kube.identity(one): one["metadata"].get("annotations", {}).get(versions.SHA256_ANNOTATION, "")
        for one in objects
    }


def _reference(pod: Object) -> Object:
    meta = {key: pod["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
