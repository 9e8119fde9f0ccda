"""Configure HTTP proxies for apt, containerd and kubeadm."""

from __future__ import annotations

import shlex

from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import PROXY, files_script, stale, unwanted
from k8sdds.model.profile import Node

APT_FILE = "/etc/apt/apt.conf.d/90k8sdds-proxy"
CONTAINERD_FILE = "/etc/systemd/system/containerd.service.d/90-k8sdds-proxy.conf"
FILES = (APT_FILE, CONTAINERD_FILE)
LOCAL = ("localhost", "127.0.0.1", ".svc", ".cluster.local")
"""Names and addresses that no proxy can reach."""


def proxy(state: DesiredState, node: Node) -> list[Action]:
    """Write the proxies before anything is downloaded; delete them if the profile has none."""
    desired = files(state)
    changed, old = stale(state, node, desired), unwanted(state, node, FILES, desired)
    if not changed and not old:
        return []
    # A containerd that runs reads its environment when it starts.
    script = files_script(changed, old) + (
        "systemctl daemon-reload\n"
        "if systemctl is-active containerd >/dev/null; then systemctl restart containerd; fi\n"
    )
    settings = state.profile.proxy
    urls = dict.fromkeys(filter(None, (settings.http, settings.https))) if settings else {}
    title = f"use the proxy {' and '.join(urls)}" if desired else "use no proxy"
    return [Action(node.name, PROXY, title, script)]


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
    """Return the addresses that nodes reach directly: each other, pods, Services, and the hosts of the profile."""
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
