"""Read the kernel objects of a node and of one of its pods, so that those of the lab and of a daemon can be compared.

`SCRIPT` is for `sh` as root in a network namespace. It needs only iproute2 and nftables; what else it cannot read is
missing from its output. `read` turns the output into lines such as `link flannel.1: mtu 1450`. Names and addresses that
differ by chance become roles: `<node>`, `<peer>`, `<pod>`, `<veth>`. Objects of other pods of the node are left out.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from k8sdds.networks.network import Difference

SCRIPT = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH LC_ALL=C
show() { printf '\n== %s\n' "$1"; shift; "$@" 2>/dev/null </dev/null || :; }
show link ip -json -details link
show address ip -json -4 address
show route ip -json -details -4 route show table all
show rule ip -json -4 rule
show neighbor ip -json -4 neigh show nud permanent
show fdb bridge -json fdb show
for variant in nft legacy; do show iptables iptables-$variant-save; done
show nft nft --json list ruleset
show ipset ipset save
show qdisc tc -json qdisc show
for link in $(ip -o link | sed 's/^[0-9]*: //; s/[:@].*//'); do show "offload $link" ethtool -k "$link"; done
show sysctl sh -c 'cd /proc/sys && grep -rs "" net/ipv4 net/bridge net/netfilter net/core'
"""

POD_NETWORKS = tuple(map(ipaddress.IPv4Network, ("10.244.0.0/16", "10.245.0.0/16", "10.32.0.0/12")))
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?!/(?:8|12|16)\b)")
_MAC = re.compile(
    r"\b(?!ee:ee:ee:ee:ee:ee|ff:ff:ff:ff:ff:ff|00:00:00:00:00:00)(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"
)
_GENERATED = (
    (re.compile(r'--comment (?:"(?:[^"\\]|\\.)*"|\S+)'), "--comment *"),
    (re.compile(r"\b(KUBE-(?:SVC|SEP|EXT|FW))-[0-9A-Z]{16}\b"), r"\1-*"),
)
"""Text of rules that programs generate, and what replaces it. A comment costs the same, whatever its text."""
_POD_CHAIN = re.compile(r"\b(?:KUBE-POD-FW|cali-[ft]w)-[\w+/-]+")
"""Names of the chains of one pod."""
_IPTABLES = {("ip", table) for table in ("raw", "mangle", "nat", "filter", "security")}
_CHANCE = frozenset({
    "ifindex", "link_index", "link_netnsid", "ifname", "address", "bridge_id", "root_id", "hello_timer", "tcn_timer",
    "topology_change_timer", "gc_timer", "designated_bridge", "designated_root", "designated_port", "hold_timer",
    "message_age_timer", "forward_delay_timer", "id", "no", "port_id", "port_no", "info_data", "linkinfo", "flags",
    "inet6_addr_gen_mode", "operstate", "stats64", "link", "master", "dev", "handle",
})  # fmt: skip
"""Attributes of links that differ by chance, or have a line of another form."""
_STATE = re.compile(r"^(pod )?sysctl net/(netfilter/nf_conntrack_count|ipv4/(route|neigh/.*/)?gc_stale)")
"""Sysctls that are counters."""


@dataclass(frozen=True)
class Place:
    """A node with one of its pods, whose objects are read. `node` and `pod` run `SCRIPT` in their namespaces."""

    node: Callable[[str], str]
    node_address: str
    pod: Callable[[str], str]
    pod_address: str


def read(place: Place) -> list[str]:
    """Return the kernel objects of a node and of its pod as lines; rules of a chain are in their order."""
    return normalized(place.node(SCRIPT), place.node_address, place.pod(SCRIPT), place.pod_address)


def normalized(node: str, node_address: str, pod: str, pod_address: str) -> list[str]:
    """Return the lines of `read` for the outputs of `SCRIPT` on the node and in the pod."""
    of_node, of_pod = _sections(node), _sections(pod)
    roles = _Roles(node_address, pod_address, "\n".join(of_node["iptables"]), *_veths(of_node, of_pod))
    lines = [roles.applied(line) for line in _lines(of_node)]
    lines += [roles.applied(f"pod {line}") for line in _lines(of_pod)]
    return [line for line in lines if not roles.of_another_pod(line) and not _STATE.match(line)]


def undeclared(lab: Sequence[str], daemon: Sequence[str], differences: Iterable[Difference]) -> list[str]:
    """Return the differences between two lists of objects that are not declared, and declared ones that do not exist."""
    found = []
    only_lab, only_daemon = Counter(lab) - Counter(daemon), Counter(daemon) - Counter(lab)
    for difference in differences:
        for side, lines, patterns in (
            ("lab", only_lab, difference.lab), ("daemon", only_daemon, difference.daemon),
        ):  # fmt: skip
            for pattern in patterns:
                matching = [line for line in lines if re.search(pattern, line)]
                if not matching:
                    found.append(f"declared, but not only in the {side}: {pattern}")
                for line in matching:
                    del lines[line]
    found += [f"only in the lab: {line}" for line in only_lab]
    found += [f"only with the daemon: {line}" for line in only_daemon]
    if not found:
        found += _other_order(lab, daemon)
    return found


def _other_order(lab: Sequence[str], daemon: Sequence[str]) -> Iterator[str]:
    """Yield the chains whose rules that both have are in another order."""
    both = Counter(lab) & Counter(daemon)
    chains: tuple[dict[str, list[str]], ...] = (defaultdict(list), defaultdict(list))
    for lines, by_chain in zip((lab, daemon), chains, strict=True):
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "iptables" and line in both:
                by_chain[rest.partition(":")[0]].append(line)
    for chain, rules in chains[0].items():
        if rules != chains[1][chain]:
            yield f"another order of the rules in {chain}: {rules} in the lab, {chains[1][chain]} with the daemon"


def _sections(output: str) -> dict[str, list[str]]:
    """Return the texts of each section of the output of `SCRIPT`."""
    _, *parts = re.split(r"^== (.+)$", output, flags=re.MULTILINE)
    sections: dict[str, list[str]] = defaultdict(list)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        sections[name].append(text.strip())
    return sections


def _items(sections: dict[str, list[str]], name: str) -> list[dict[str, Any]]:
    return [item for text in sections[name] for item in json.loads(text or "[]")]


def _veths(node: dict[str, list[str]], pod: dict[str, list[str]]) -> tuple[str, list[str]]:
    """Return the name of the node's end of the pod's veth pair, and those of other pods."""
    ends = {link["link_index"] for link in _items(pod, "link") if "link_index" in link}
    own, others = "", []
    for link in _items(node, "link"):
        if (
            link.get("linkinfo", {}).get("info_kind") == "veth"
            and link["ifname"] != "eth0"
            and "link_index" in link
        ):
            if link["ifindex"] in ends and link.get("link_netnsid") is not None:
                own = link["ifname"]
            elif link.get("link_netnsid") is not None:
                others.append(link["ifname"])
    return own, others


class _Roles:
    """Replace what differs by chance by its role."""

    def __init__(self, node: str, pod: str, rules: str, veth: str, other_veths: Sequence[str]) -> None:
        self._node, self._pod = ipaddress.IPv4Address(node), ipaddress.IPv4Address(pod)
        self._nodes = ipaddress.IPv4Network(f"{node}/24", strict=False)
        self._pods = ipaddress.IPv4Network(f"{pod}/24", strict=False)
        self._veth, self._others = veth, {f"{name}{end}" for name in other_veths for end in ":/ "}
        jumps = re.findall(rf"-[sd] {pod}/32 .*-j ({_POD_CHAIN.pattern})", rules)
        self._chains = dict.fromkeys(jumps, "<chain of the pod>")

    def applied(self, line: str) -> str:
        line = _ADDRESS.sub(lambda match: self._role(match[0]), line)
        line = _MAC.sub("<mac>", line)
        for pattern, replacement in _GENERATED:
            line = pattern.sub(replacement, line)
        for chain, role in self._chains.items():
            line = line.replace(chain, role)
        return re.sub(rf"(?<![\w-]){re.escape(self._veth)}(?![\w-])", "<veth>", line) if self._veth else line

    def of_another_pod(self, line: str) -> bool:
        if "<other pod>" in line or any(name in f"{line} " for name in self._others):
            return True
        return bool(_POD_CHAIN.search(line))

    def _role(self, text: str) -> str:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            return text
        last = text.rpartition(".")[2]
        known = {self._node: "<node>", self._pod: "<pod>"}
        if address in known:
            return known[address]
        if address in self._nodes:
            return f"<nodes>.{last}" if last in ("0", "1", "255") else "<peer>"
        if any(address in network for network in POD_NETWORKS):
            if last not in ("0", "1", "255"):
                return "<other pod>"
            return f"<{'pods' if address in self._pods else 'peer pods'}>.{last}"
        return text


def _lines(sections: dict[str, list[str]]) -> Iterator[str]:
    for link in _items(sections, "link"):
        yield from _link(link)
    for link in _items(sections, "address"):
        for address in link.get("addr_info", ()):
            broadcast = f" brd {address['broadcast']}" if "broadcast" in address else ""
            yield f"address {link['ifname']}: {address['local']}/{address['prefixlen']}{broadcast}"
    for route in _items(sections, "route"):
        yield _pairs(f"route {route.pop('table', 'main')}: {route.pop('type', '')} {route.pop('dst')}", route)
    for rule in _items(sections, "rule"):
        yield _pairs(f"rule {rule.pop('priority')}:", rule)
    for neighbor in _items(sections, "neighbor"):
        yield _pairs(f"neighbor {neighbor.pop('dev')}:", neighbor)
    for entry in _items(sections, "fdb"):
        # The others are learned, or those of each link itself.
        if "dst" in entry:
            yield _pairs(f"fdb {entry.pop('ifname')}:", entry)
    for text in sections["iptables"]:
        yield from _iptables(text)
    for text in sections["nft"]:
        yield from _nft(json.loads(text or '{"nftables": []}')["nftables"])
    for text in sections["ipset"]:
        yield from (f"ipset {line}" for line in text.splitlines())
    for qdisc in _items(sections, "qdisc"):
        yield f"qdisc {qdisc['dev']}: {qdisc['kind']}"
    for name in [name for name in sections if name.startswith("offload ")]:
        for text in sections[name]:
            yield from (f"{name}: {line.strip()}" for line in text.splitlines()[1:])
    for text in sections["sysctl"]:
        for line in text.splitlines():
            path, _, value = line.partition(":")
            yield f"sysctl {path}: {value}"


def _pairs(begin: str, items: dict[str, Any]) -> str:
    return " ".join(
        [begin, *(f"{key} {_value(value)}" for key, value in sorted(items.items()) if value not in ([], ""))]
    )


def _value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _link(link: dict[str, Any]) -> Iterator[str]:
    name, info = link["ifname"], link.get("linkinfo", {})
    attributes = {
        **link, "flags": sorted(link["flags"]), "kind": info.get("info_kind"), "port_of": info.get("info_slave_kind"),
    }  # fmt: skip
    attributes |= {
        f"{info.get('info_kind')}.{key}": value for key, value in info.get("info_data", {}).items()
    }
    attributes |= {f"port.{key}": value for key, value in info.get("info_slave_data", {}).items()}
    for key, value in sorted(attributes.items()):
        kind, _, attribute = key.rpartition(".")
        chance = key in _CHANCE - {"flags", "master"} or (kind in ("bridge", "port") and attribute in _CHANCE)
        if not chance and value is not None and not isinstance(value, dict):
            yield f"link {name}: {key} {_value(value)}"


def _iptables(text: str) -> Iterator[str]:
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith("-A "):
            chain, _, rule = line[3:].partition(" ")
            yield f"iptables {table} {chain}: {rule}"


def _nft(items: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the hooks of all tables, and the rules of tables that iptables-save does not print."""
    for item in items:
        chain, rule = item.get("chain", {}), item.get("rule", {})
        if "hook" in chain:
            keys = ("type", "hook", "prio", "policy", "dev")
            words = (f"{key} {chain[key]}" for key in keys if key in chain)
            yield f"hook {chain['family']} {chain['table']} {chain['name']}: {' '.join(words)}"
        elif rule and (rule["family"], rule["table"]) not in _IPTABLES and rule["family"] != "ip6":
            yield f"nft {rule['family']} {rule['table']} {rule['chain']}: {json.dumps(rule['expr'])}"
