"""Define which columns of the tidy table distinguish cells, apart from the network.

A *condition* has one value for each column in `CONDITION`: the requested DDS and machine settings. Networks are
compared within a condition. A *setting* is a condition without test and payload, reduced to the columns that
differ in a campaign. Each setting becomes a table or a row of a figure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from k8sdds.model.background import describe_text
from k8sdds.model.sweep import SHARED_MEMORY
from k8sdds.workloads import OPTIONS

CONDITION = (
    "test", "payload_bytes", *OPTIONS,
    "transport", "reliability", "publishers", "subscribers", "middleware", "security", "qos",
    "middleware_config", "middleware_config_sha256",
    "rate", "rate_profile", "batch_bytes", "message_bytes", "fragment_bytes", "instances", "topics", "writers",
    "discovery", "receive_mode",
    "publish_mode", "flow_bytes", "flow_period_ms", "realtime_priority", "lock_memory", "dscp",
    "layout", "ip_families", "policies", "tuning", "link", "cpu_quota", "background", "placement", "nodes", "testbed",
)  # fmt: skip
"""Every dimension of a cell except the network, the most interesting to readers first."""

OBSERVED = ("tcp_congestion_control",)
"""What trials found and did not set. It does not distinguish cells, but reports and comparisons state it."""

UNIT = "network_label"
"""The column that identifies what is compared: variants such as `weavenet-1376` count as separate networks."""

_SETTING = tuple(name for name in CONDITION if name not in ("test", "payload_bytes"))


def distinguishing(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the smallest set of columns that distinguishes the settings of the rows, in the order of CONDITION.

    A column counts only if its values differ within the same test. Otherwise a layout that depends on the test,
    or a number of nodes that depends on the number of subscribers, would split tables that belong together.
    """
    settings = {(row["test"], *(row[name] for name in _SETTING)) for row in rows}
    tests = {setting[0] for setting in settings}
    kept: list[int] = []

    def classes(columns: list[int]) -> int:
        return len({(setting[0], *(setting[i] for i in columns)) for setting in settings})

    # Transport, reliability and subscribers come first, so columns that depend on them are omitted.
    for column in range(1, len(_SETTING) + 1):
        if classes([*kept, column]) > classes(kept):
            kept.append(column)
    assert classes(kept) == len(settings) or not tests
    return tuple(_SETTING[column - 1] for column in kept)


def describe(values: Mapping[str, Any]) -> str:
    """Describe the given columns of a condition, such as `unicast, reliable, 4 subscribers`."""
    parts = [_describe(name, values[name]) for name in (*CONDITION, *OBSERVED) if name in values]
    return ", ".join(part for part in parts if part)


def _describe(name: str, value: Any) -> str:
    if value is None or value == "":
        return ""
    match name:
        case "transport" if value == SHARED_MEMORY:
            return "shared memory without network"
        case "ip_families":
            return {"ipv4": "IPv4", "ipv6": "IPv6"}.get(value, f"dual stack, {value}")
        case "transport" | "reliability" | "middleware":
            return str(value)
        case "payload_bytes":
            return payload(value)
        case "publishers" | "subscribers" | "topics" | "flows" | "connections" | "pods" | "services":
            return f"{value:g} {name if value != 1 else name[:-1]}"
        case "object_bytes":
            return f"objects of {payload(value)}"
        case "via":
            return f"via {value}"
        case "proxy":
            return f"kube-proxy in {value} mode"
        case "concurrency":
            return f"concurrency {value:g}"
        case "mss":
            return f"MSS {value:g} B"
        case "max_subscribers":
            return f"at most {value:g} subscribers"
        case "loss_percent" | "latency_at_percent" | "min_rate" | "max_rate":
            return ""
        case "p99_ms":
            return f"p99 ≤ {value:g} ms"
        case "width_percent":
            return f"intervals of {value:g} %"
        case "tcp_congestion_control":
            return f"TCP congestion control {value}"
        case "deadline_ms":
            return f"deadline {value:g} ms"
        case "security":
            return "no security" if value == "none" else f"security {value}"
        case "rate":
            return f"{value:g} samples/s" if value else "unlimited rate"
        case "batch_bytes":
            return f"batches of {payload(value)}" if value else "no batching"
        case "message_bytes":
            return _size("messages", value, usual="auto")
        case "fragment_bytes":
            return _size("fragments", value, usual="default")
        case "tuning":
            return "no tuning" if value == "none" else f"tuning {value}"
        case "policies":
            return f"{value:g} {'policy' if value == 1 else 'policies'}" if value else "no policies"
        case "rate_profile":
            return f"{value} rate"
        case "instances":
            return f"{value:g} instances" if value else "no key"
        case "writers":
            return f"{value:g} writers per topic" if value != 1 else "1 writer per topic"
        case "cpu_quota":
            return f"{value:g} CPUs per pod"
        case "nodes":
            return f"{value:g} nodes"
        case "background":
            return "no background" if value == "none" else describe_text(value)
        case "link":
            return _link(value)
        case "discovery":
            return "usual discovery" if value == "auto" else f"discovery by {value}"
        case "publish_mode":
            return f"{value} publishing"
        case "flow_bytes":
            return f"at most {payload(value)}" if value else "no flow controller"
        case "flow_period_ms":
            return f"per {value} ms"
        case "realtime_priority":
            return f"SCHED_FIFO {value}" if value else "normal scheduler"
        case "lock_memory":
            return "locked memory" if value else "unlocked memory"
        case "dscp":
            return f"DSCP {value}"
        case "receive_mode":
            return f"receive by {value}"
        case "middleware_config":
            return f"config {value}"
        case "middleware_config_sha256":
            return f"SHA-256 {value[:12]}"
        case "qos" | "layout":
            return f"{name} {value}"
        case _:
            return f"{name.replace('_', ' ')} {value}"


def _size(parts: str, value: Any, usual: str) -> str:
    """Describe a size that is a number of bytes or a word."""
    if value == usual:
        return f"usual {parts}"
    words = {"mtu": "that fit the MTU", "max": "of up to 65500 B", "default": "of the default size"}
    return f"{parts} {words.get(value) or f'of up to {value} B'}"


def offloads_of(link: str | None) -> list[str]:
    """Describe the offloads that a trial sets on the links, from the JSON text of `link`: `gro on`, `tso off`."""
    return [f"{name} {'on' if on else 'off'}" for name, on in _offloads(link).items()]


def splits_tcp(link: str | None) -> bool:
    """Return whether the packets of TCP are split before they reach the links, from the JSON text of `link`."""
    return _offloads(link).get("tso") is False


def _offloads(link: str | None) -> dict[str, bool]:
    offloads = (_json_object(link) or {}).get("offloads")
    return offloads if isinstance(offloads, dict) else {}


def _json_object(text: str | None) -> dict[str, Any] | None:
    import json

    with contextlib.suppress(TypeError, ValueError):
        value = json.loads(text or "")
        return value if isinstance(value, dict) else None
    return None


def _link(text: str) -> str:
    link = _json_object(text)
    if link is None:
        return f"link {text}"
    parts = []
    if link.get("rate_mbit"):
        parts.append(f"{link['rate_mbit']:g} Mbit/s")
    if link.get("loss_percent"):
        parts.append(f"{link['loss_percent']:g} % loss")
    if link.get("delay_us"):
        parts.append(f"{link['delay_us']:g} µs delay")
    if link.get("mtu"):
        parts.append(f"MTU {link['mtu']}")
    if link.get("lag"):
        parts.append(f"LAG of {link['lag']}")
    return "links " + (", ".join(parts + offloads_of(text)) or "unshaped")


def payload(size: float) -> str:
    """Format a payload in bytes without rounding: `64 B`, `1400 B`, `1 KiB`, `1.5 KiB`."""
    size = int(size)
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and (size * 2) % factor == 0:
            return f"{size / factor:g} {unit}"
    return f"{size} B"
