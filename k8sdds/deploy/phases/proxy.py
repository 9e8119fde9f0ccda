"""Configure HTTP proxies for apt, containerd and kubeadm."""

from __future__ import annotations

import shlex

from k8sdds.deploy.actions import Action, Effect, file_hashes, file_script
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import Phase
from k8sdds.model.profile import Node

APT_FILE = "/etc/apt/apt.conf.d/90k8sdds-proxy"
CONTAINERD_FILE = "/etc/systemd/system/containerd.service.d/90-k8sdds-proxy.conf"
FILES = (APT_FILE, CONTAINERD_FILE)
LOCAL = ("localhost", "127.0.0.1", ".svc", ".cluster.local")
"""Names and addresses that no proxy can reach."""


class Proxy(Phase):
    """Write the proxies before anything is downloaded; delete them if the profile has none."""

    title = "proxy"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan to write files that differ, or to delete those of an earlier profile."""
        desired = files(state)
        existing = [path for path in FILES if state.file_sha256(node.name, path)]
        unwanted = tuple(path for path in existing if path not in desired)
        hashes = file_hashes(desired)
        stale = [path for path in desired if state.file_sha256(node.name, path) != hashes[path]]
        if not stale and not unwanted:
            return []
        script = "".join(file_script(path, desired[path]) for path in stale)
        script += "".join(f"rm -f {path}\n" for path in unwanted)
        # A containerd that runs reads its environment when it starts.
        script += (
            "systemctl daemon-reload\n"
            "if systemctl is-active containerd >/dev/null; then systemctl restart containerd; fi\n"
        )
        title = f"use the proxy {_describe(state)}" if desired else "use no proxy"
        effect = Effect(files={path: hashes[path] for path in stale}, deleted_files=unwanted)
        return [Action(node.name, self.title, title, script, effect=effect)]


def files(state: DesiredState) -> dict[str, str]:
    """Return the files that configure apt and containerd; empty without a proxy."""
    proxy = state.profile.proxy
    if proxy is None:
        return {}
    apt = [
        f'Acquire::{scheme}::Proxy "{url}";'
        for scheme, url in (("http", proxy.http), ("https", proxy.https))
        if url is not None
    ]
    # apt knows no domains and address ranges.
    hosts = [host for host in proxy.no_proxy if not set("*/:") & set(host) and not host.startswith(".")]
    apt += [f'Acquire::{scheme}::Proxy::{host} "DIRECT";' for host in hosts for scheme in ("http", "https")]
    containerd = [
        "[Service]",
        *(f'Environment="{name}={value}"' for name, value in _variables(state).items()),
    ]
    return {
        APT_FILE: "".join(f"{line}\n" for line in ["// Written by k8sdds.", *apt]),
        CONTAINERD_FILE: "".join(f"{line}\n" for line in ["# Written by k8sdds.", *containerd]),
    }


def environment(state: DesiredState) -> str:
    """Return the proxies as assignments before a shell command; empty without a proxy."""
    return "".join(f"{name}={shlex.quote(value)} " for name, value in _variables(state).items())


def no_proxy(state: DesiredState) -> list[str]:
    """Return what the nodes reach directly: each other, pods, Services, and the hosts of the profile."""
    kubernetes = state.profile.kubernetes
    # Nodes that --limit left out are also in the list: it must not depend on which machines are down.
    nodes = [*state.profile.nodes, *state.left_out]
    addresses = {
        address
        for node in state.profile.nodes
        if node.name in state.facts
        for address in state.addresses(node.name)
    }
    # A zone index means nothing on another machine.
    addresses |= {node.address for node in nodes if node.address and "%" not in node.address}
    entries = [
        *LOCAL, *map(str, kubernetes.pod_cidrs), *map(str, kubernetes.service_cidrs),
        *sorted(addresses), *sorted(node.name for node in nodes),
        *(state.profile.proxy.no_proxy if state.profile.proxy else ()),
    ]  # fmt: skip
    return list(dict.fromkeys(entries))


def _variables(state: DesiredState) -> dict[str, str]:
    proxy = state.profile.proxy
    if proxy is None:
        return {}
    values = {"HTTP_PROXY": proxy.http, "HTTPS_PROXY": proxy.https, "NO_PROXY": ",".join(no_proxy(state))}
    return {name: value for name, value in values.items() if value is not None}


def _describe(state: DesiredState) -> str:
    proxy = state.profile.proxy
    return " and ".join(dict.fromkeys(filter(None, (proxy.http, proxy.https)))) if proxy else ""
