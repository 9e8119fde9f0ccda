"""Build the tables of facts in report.html: networks, paths, testbed, background cost and attempts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from k8sdds.analysis import background_cost
from k8sdds.analysis.comparison import installed_networks, network_software
from k8sdds.analysis.conditions import UNIT, describe
from k8sdds.model.axis import payload
from k8sdds.networks import NETWORKS, known_names
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.table import Cell, Table
from k8sdds.report.tables import network
from k8sdds.results import fingerprint as fingerprints
from k8sdds.system.grouping import Row, grouped

MIB = 2**20

_BACKGROUND_COLUMNS = (
    ("network_cpu_s_per_gbit", "CPU of its pods", "s per delivered Gbit", 1),
    ("network_memory_bytes", "memory of its pods", "MiB per node", MIB),
    ("softirq_s_per_gbit", "softirqs", "s per delivered Gbit", 1),
    ("softirq_percent", "softirqs", "% of all cores", 1),
    ("kubelet_cpu_percent", "kubelet", "% of one core", 1),
    ("kubelet_memory_bytes", "kubelet", "MiB", MIB),
    ("nft_chains", "nftables chains", "per node", 1),
    ("nft_rules", "nftables rules", "per node", 1),
    ("legacy_rules", "legacy iptables rules", "per node", 1),
    ("pod_scheduled_s", "pod scheduled", "s after creation", 1),
    ("pod_network_ready_s", "pod network ready", "s after creation", 1),
    ("pod_running_s", "pod running", "s after creation", 1),
)
"""Columns of `analysis.background_cost` with title, unit and divisor."""
_BACKGROUND = (
    "Of the network's pods, the kubelet, softirqs and packet filters on every node before and after each block, and the"
    " startup time of pods: means over the blocks. There is no confidence interval, because a block is long and its"
    " values are totals. The softirqs of nodes that share a kernel are counted only once."
)
_TOP = (
    "At the end of the blocks, for comparison with studies that use this command. The metrics server averages these"
    " values over its own window; k8sdds takes its CPU and memory results from the trials. tables/tops.csv has all."
)
_SOFTWARE = (
    "What ran on the cluster while each network was measured: agents, what installs their CNI plugins, and kube-proxy,"
    " with versions and digests of the images."
)
_ON_THE_LINK = (
    "Before it measured, k8sdds sent known datagrams between two pods on different nodes and captured what left the"
    " node of the sender. These values were observed, whatever the network is called. Rules are those of the"
    " sender's node. Links: the engine that impaired them in trials, and the SHA-256 of all its parameters."
)
_OBSERVED = {
    "path_mtu_bytes": "path MTU", "cleartext": "readable", "multicast": "multicast", "masqueraded": "masqueraded",
    "conntrack": "conntrack", "rules": "rules", "rules_matched": "matched per packet", "programs": "BPF programs",
}  # fmt: skip
"""Keys of a fingerprint with the heads of their columns."""
_PATHS = (
    "MTUs in bytes, what the network adds, and packets that were dropped at each place on the path in the measured"
    " intervals of all valid trials; – not counted."
)
_DROPS = {
    "udp_send_buffer_errors": "send buffer", "interface_drops": "pods' interfaces", "ip_reassembly_fails": "reassembly",
    "udp_receive_buffer_errors": "receive buffer",
}  # fmt: skip
"""Counters of dropped packets with the heads of their columns, from publisher to subscriber."""


def background(content: Content) -> list[Table]:
    """Return the tables of the background cost of each network and of `kubectl top`, if they were measured."""
    networks = background_cost.by_network(content.run)
    columns = [
        column for column in _BACKGROUND_COLUMNS if any(row[column[0]] is not None for row in networks)
    ]
    costs = [
        [
            network(content, row["network"]),
            *(Cell(_background(row[name], divisor)) for name, _, _, divisor in columns),
        ]
        for row in networks
        if columns
    ]
    tops = [
        [network(content, row["network"]), *map(Cell, (
            row["node"], formats.number(row["cpu_cores"]), formats.number(row["memory_bytes"] / MIB),
            " to ".join(map(formats.number, sorted(set(row["window_s"])))), str(row["readings"]),
        ))]
        for row in background_cost.top_by_node(content.run)
    ]  # fmt: skip
    titles = [(title, unit) for _, title, unit, _ in columns]
    top_heads: list[str | tuple[str, str]] = [
        "network",
        "node",
        ("CPU", "cores"),
        ("memory", "MiB"),
        ("window", "s"),
        "readings",
    ]
    return _filled(
        Table("Background cost of the networks", ["network", *titles], costs, _BACKGROUND),
        Table("Output of kubectl top nodes", top_heads, tops, _TOP),
    )


def _background(value: Any, divisor: float) -> str:
    if value is not None and divisor == 1 and value == int(value):
        return str(int(value))  # a count
    return formats.number(None if value is None else value / divisor)


def _filled(*tables: Table) -> list[Table]:
    return [table for table in tables if table.rows]


def networks(content: Content) -> list[Table]:
    """Return the tables of the networks: what is known of them, the software that ran them, and what was observed."""
    facts, software, observed = [], [], []
    for label, name, trials in _by_families(content):
        head = network(content, label, name)
        fact, trial = content.network_facts.get(label, {}), trials[-1] if trials else {}
        facts.append([head, *map(Cell, _facts_of(fact, trial))])
        software += [
            [head, Cell(component), Cell(_short(version))]
            for component, version in network_software(trials).items()
        ]
        if found := fingerprints.first(trials):
            added = f"{found.outer}, {found.added_bytes} bytes" if found.added_bytes else found.outer
            reasons = "; ".join(dict.fromkeys(found.not_observed.values()))
            texts = (added, *map(found.value, _OBSERVED), _links(trials), reasons)
            observed.append([head, *map(Cell, texts)])
    heads = [
        "network", "MTU", "encapsulation", "encryption", "multicast", "engine", "fidelity",
        "differences, options, proof",
    ]  # fmt: skip
    seen = ["network", "added by the network", *_OBSERVED.values(), "links", "why not observed"]
    return _filled(
        Table("Networks", heads, facts),
        Table("Software of the networks", ["network", "component", "version"], software, _SOFTWARE),
        Table("Observed on the link", seen, observed, _ON_THE_LINK),
    )


def _links(trials: Sequence[Row]) -> str:
    """Return what impaired the links in some trials, as their fingerprints have it."""
    found = (row["fingerprint"].get("link") for row in trials if row["fingerprint"])
    return ", ".join(_short(str(link or "as they are")) for link in dict.fromkeys(found))


def _by_families(content: Content) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield each network with its trials: (label, name to show, trials).

    If the campaign measured several IP families, this yields a network once for each of them.
    """
    trials = [row for setting in content.settings for row in setting.trials]
    several = len({row["ip_families"] for row in trials}) > 1
    for label in content.networks:
        own = [row for row in trials if row[UNIT] == label]
        for families in dict.fromkeys(row["ip_families"] for row in own) if several else [None]:
            name = f"{label}, {describe({'ip_families': families})}" if several else label
            yield label, name, [row for row in own if not several or row["ip_families"] == families]


def _facts_of(fact: dict[str, Any], trial: Row) -> list[str]:
    def get(*names: str) -> str:
        values = [source.get(name) for name in names for source in (fact, trial)]
        return next((text_of(value) for value in values if value not in (None, "", {}, [], "{}")), "")

    # Earlier versions recorded an unknown encryption as none.
    foreign = fact.get("name") in known_names() and fact.get("name") not in NETWORKS
    encryption = None if foreign else fact.get("encryption")
    notes = (get("differences"), get("options", "network_options"), str(trial.get("network_proof") or ""))
    return [
        text_of(trial.get("mtu_bytes") or "") or get("mtu", "mtu_bytes"), get("encapsulation") or "none",
        "unknown" if encryption is None else str(encryption) or "none", get("multicast") or "no", get("engine") or "–",
        get("fidelity"), "; ".join(filter(None, notes)),
    ]  # fmt: skip


def paths(content: Content) -> list[Table]:
    """Return the table of the paths of samples that crossed a link."""
    rows = []
    for row in path_rows(content):
        added = "" if row["added_bytes"] is None else f" +{row['added_bytes']} B"
        texts = [
            row["pod_mtu_bytes"] or "?", f"{row['added']}{added}{', too large' if row['too_large'] else ''}" or "?",
            row["link_mtu_bytes"] or "?", *("–" if row[name] is None else row[name] for name in _DROPS), row["lost"],
            row["trials"],
        ]  # fmt: skip
        rows.append([network(content, row["network"]), *(Cell(str(text)) for text in texts)])
    heads = [
        "network", "MTU of pods", "added", "MTU of links", *_DROPS.values(), "samples lost", "trials",
    ]  # fmt: skip
    return _filled(Table("Paths, MTUs and dropped packets", heads, rows, _PATHS))


def path_rows(content: Content) -> list[Row]:
    """Return a row for each path through a network: MTUs, what the network adds, and the sums of dropped packets.

    `too_large` is whether the largest packet of a pod exceeds the MTU of the link with the headers of the network.
    """
    crossing = (row for setting in content.settings for row in setting.trials)
    crossing = (row for row in crossing if row["drops"] and row["transport"] != "shared-memory")
    groups = grouped(
        crossing, lambda row: (content.networks.index(row[UNIT]), row["mtu_bytes"], _link_mtu(row))
    )
    rows = []
    for key in sorted(groups, key=lambda key: [number or 0 for number in key]):
        (label, pod, link), trials = (content.networks[key[0]], *key[1:]), groups[key]
        found = fingerprints.first(trials)
        added = found.added_bytes if found else None
        counts = {name: [row["drops"].get(name) for row in trials] for name in _DROPS}
        known = {name: [count for count in each if count is not None] for name, each in counts.items()}
        rows.append({
            "network": label, "pod_mtu_bytes": pod, "link_mtu_bytes": link,
            "added": found.value("outer_protocol").replace("none", "as sent") if found else "", "added_bytes": added,
            "too_large": bool(added and pod and link and pod + added > link),
            **{name: sum(each) if each else None for name, each in known.items()},
            "lost": sum(row["lost"] or 0 for row in trials), "trials": len(trials),
        })  # fmt: skip
    return rows


def _link_mtu(row: Row) -> int | None:
    """Return the MTU of the nodes' links; None means a cluster's, which only trials with `link.mtu` record."""
    links = (row["node_links"] or {}).values()
    recorded = [link.get("mtu_bytes") for link in links if isinstance(link, dict)]
    known = [int(mtu) for mtu in (*recorded, row.get("link_mtu")) if isinstance(mtu, int | float)]
    return min(known) if known else LINK_MTU if row["testbed"] == "lab" else None


def testbed(content: Content) -> list[Table]:
    """Return the facts about the testbed as text, with sizes in GiB, and the installed network of each block."""
    facts = dict(content.run.facts)
    if installed := installed_networks([row for setting in content.settings for row in setting.trials]):
        # What was installed at the start is that of the first block.
        facts.pop("installed_network_facts", None)
        facts["installed_network"] = "; ".join(
            f"{name} ({'block' if len(blocks) == 1 else 'blocks'} {', '.join(map(str, blocks))})"
            for name, blocks in installed.items()
        )
    rows = []
    for name, value in facts.items():
        is_size = name.endswith("_bytes") and isinstance(value, int | float)
        text = f"{value / 2**30:.1f} GiB" if is_size else _short(text_of(value))
        if text:
            rows.append([Cell(name.removesuffix("_bytes").replace("_", " ")), Cell(text)])
    shortened = any("…" in row[1].text for row in rows)
    under = "campaign.json has hashes and boot ids in full." if shortened else ""
    return _filled(Table("Facts", ["fact", "value"], rows, under))


def _short(text: str) -> str:
    """Shorten hashes and boot ids to their first 8 characters."""
    return re.sub(r"\b([0-9a-f]{8})(?:[0-9a-f]{24,}|(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b", r"\1…", text)


def text_of(value: Any) -> str:
    """Return a value of a JSON file as text."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {text_of(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(text_of, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- attempts ---------------------------------------------------------------------------------------------


def attempts(content: Content, caption: str, rows: Sequence[Row]) -> list[Table]:
    """Return a table of attempts: the invalid ones with their reasons, others with their results."""
    invalid = all(not row["valid"] for row in rows)
    results = ("valid", "Mbit/s", "p50 µs", "p90 µs", "p99 µs", "loss %", "trial")
    heads = ["network", "condition", "subs", "rep.", "att.", *(("reason", "trial") if invalid else results)]
    cells = []
    for row in rows:
        condition = (row["test"], payload(row["payload_bytes"] or 0), row["transport"], row["reliability"])
        # No test measures both latency and delay.
        times = [
            row[f"delay_{name}_us"] if row[f"latency_{name}_us"] is None else row[f"latency_{name}_us"]
            for name in ("p50", "p90", "p99")
        ]
        numbers = map(formats.number, (row["throughput_mbps"], *times, row["lost_percent"]))
        texts = [
            ", ".join(str(part) for part in condition if part),
            str(row["subscribers"] or ""), "" if row["repetition"] is None else str(row["repetition"]),
            str(row["attempt"] or ""),
            *([row["reason"] or "no reason recorded"] if invalid else ["yes" if row["valid"] else "no", *numbers]),
            row["trial_id"],
        ]  # fmt: skip
        cells.append([network(content, row[UNIT]), *map(Cell, texts)])
    return _filled(Table(caption, heads, cells))
