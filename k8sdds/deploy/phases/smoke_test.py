"""The proof that a cluster works: pods on all nodes exchange datagrams, and multicast where it is carried."""

from __future__ import annotations

import copy

from k8sdds import networks, versions
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node
from k8sdds.system import yaml_text
from k8sdds.system.paths import shared

PHASE = "smoke test"
PORT = 7000
GROUP = "239.255.0.1"
TIMEOUT_S = 20


def namespace() -> apply.Object:
    """The namespace of what k8sdds runs on a cluster, unstamped."""
    found: apply.Object = _read()[0]
    return found


def key(wanted: DesiredState) -> str:
    """What was proven when a test passed: this network between these nodes."""
    return apply.digest([wanted.network.name, list(wanted.network.manifests), _names(wanted)])


def plan(wanted: DesiredState, node: Node, changed: bool = False) -> list[Action]:
    """Once for a network and its nodes, and again whenever something was changed."""
    if not node.is_control_plane or (wanted.cluster.proven == key(wanted) and not changed):
        return []
    names = _names(wanted)
    needs = tuple((one.name, phase) for one in wanted.workers() for phase in ("join", "images"))
    return [
        Action(
            node.name, PHASE,
            f"exchange datagrams between {len(names)} nodes" if len(names) > 1 else "run a pod",
            script(names, wanted.network.name, key(wanted)), needs=needs, timeout_s=300,
            remedy="a firewall between the machines? docs/troubleshooting.md; and k8sdds logs",
        )
    ]  # fmt: skip


def script(nodes: list[str], network: str, proven: str) -> str:
    """Words for the control plane that test the network between these nodes and write down what is proven."""
    space, template = apply.stamped(_read())
    pods = []
    for name in nodes:
        pod = copy.deepcopy(template)
        pod["metadata"]["name"] = f"smoke-{name}"
        pod["spec"]["nodeName"] = name
        pods.append(pod)
    run = f"kubectl --namespace {versions.SYSTEM_NAMESPACE}"
    names = " ".join(f"smoke-{name}" for name in nodes)
    lines = [
        apply.apply_script([space]),
        f"remove() {{ {run} delete pod {names} --ignore-not-found --now >/dev/null 2>&1 || :; }}\n",
        "remove\ntrap remove EXIT\n",
        # The namespace's account may be a moment behind it.
        "for second in $(seq 20); do\n"
        f"  {run} get serviceaccount default >/dev/null 2>&1 && break\n  sleep 0.3\ndone\n",
        apply.apply_script(pods),
        f"{run} wait pod {names} --for=condition=Ready --timeout=120s >/dev/null || {{\n"
        f"  {run} get pods -o wide >&2; {run} describe pods | tail -n 30 >&2; exit 1\n}}\n",
        f"addresses=$({run} get pods {names} -o jsonpath='{{range .items[*]}}{{.status.podIP}} {{end}}')\n"
        if len(nodes) > 1
        else f"addresses=$({run} get pod {names} -o jsonpath='{{.status.podIP}}')\n",
        "work=$(mktemp -d)\n",
        # Each asks the next, the last one the first: every node sends and receives.
        f"set -- $addresses\nfirst=$1\nfor pod in {names}; do\n  shift\n"
        f"  ( {run} exec $pod -- k8sdds-probe ask ${{1:-$first}}:{PORT} --count 5 --timeout {TIMEOUT_S}"
        " >$work/$pod 2>&1 || echo $pod cannot reach ${1:-$first} >>$work/failed ) &\ndone\nwait\n",
        "if [ -s $work/failed ]; then\n  cat $work/failed $work/smoke-* >&2; rm -rf $work; exit 1\nfi\n",
        "cat $work/smoke-*\nrm -rf $work\n",
    ]
    if len(nodes) > 1 and carries_multicast(network):
        lines.append(
            f"said=$({run} exec smoke-{nodes[0]} -- k8sdds-probe ask {GROUP}:{PORT} --count 10"
            f" --timeout {TIMEOUT_S} || :)\n"
            'echo "$said"\nset -- $addresses\nshift\nfor address in "$@"; do\n'
            '  case $said in *"\\"$address:"*) found=yes ;; esac\ndone\n'
            '[ "${found:-}" = yes ] || { echo "multicast does not reach another node" >&2; exit 1; }\n'
        )
    lines.append(
        f"kubectl annotate namespace {versions.SYSTEM_NAMESPACE} --overwrite {versions.PROVEN_ANNOTATION}={proven} >/dev/null\n"
    )
    return "".join(lines)


def carries_multicast(network: str) -> bool:
    """Whether pods of this network hear each other's multicast across nodes. On `host` only pods without a
    network of their own do, by the machines' switch."""
    return network != "host" and bool(networks.find(network).multicast)


def _names(wanted: DesiredState) -> list[str]:
    return sorted(node.name for node in wanted.profile.nodes)


def _read() -> list[apply.Object]:
    found: list[apply.Object] = yaml_text.load_all(
        (shared("deploy") / "smoke-test" / "manifest.yaml").read_text(encoding="utf-8")
    )
    return found
