"""From the logs of one trial to its line in trials.jsonl, and whether it is valid."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from k8sdds.importing.files import Bundle
from k8sdds.importing.layouts import K8SDDS, Hints
from k8sdds.model.trial import PUBLISHER, SUBSCRIBER, Cell
from k8sdds.perftest.log import Log, Result
from k8sdds.results import aggregate
from k8sdds.results.metrics import IMPORTED
from k8sdds.results.record import COLUMNS
from k8sdds.results.run_folder import SCHEMA

TESTBED = "imported"

UNKNOWN: dict[str, Any] = {name: None for name, column in COLUMNS.items() if column.only in ("", IMPORTED)}
"""Every key of an imported trial; a log may not state all of them."""


@dataclass
class Imported:
    """One trial of the published folder: its record, its files and, for finding copies, its numbers."""

    record: dict[str, Any]
    bundle: Bundle
    numbers: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Every number of the results by participant."""

    def invalidate(self, reason: str) -> None:
        """Mark it invalid, unless it is already."""
        if self.record["valid"]:
            self.record |= {"valid": False, "reason": reason}


def records(bundle: Bundle, hints: Hints, layout: str) -> list[Imported]:
    """The trials in a bundle: one, or one for each payload of a scan. Their ids are not yet unique."""
    logs = {name: source.log for name, source in bundle.logs.items() if source.log is not None}
    payloads = sorted({result.payload_bytes for log in logs.values() for result in log.results})
    stated = sorted({payload for log in logs.values() for payload in log.settings.payloads})
    return [_record(bundle, logs, hints, layout, payload) for payload in (payloads or stated or [None])]


def _record(bundle: Bundle, logs: dict[str, Log], hints: Hints, layout: str, payload: int | None) -> Imported:
    pubs = {name: log for name, log in logs.items() if bundle.logs[name].role == PUBLISHER}
    subs = {name: log for name, log in logs.items() if bundle.logs[name].role == SUBSCRIBER}
    warnings = _warnings(bundle, logs)
    said = _stated(pubs, subs) | ({"payload_bytes": payload} if payload is not None else {})
    values = _agreed(hints, said, warnings)
    values = _described(values, hints, layout)
    found = {name: result for name, log in logs.items() if (result := _result(log, payload))}
    reason = _judge(bundle, pubs, subs, values, found)
    if hints.set_aside and reason is None:
        reason = f"set-aside: {hints.set_aside!r} marks it as a backup; --map 'GLOB:keep=yes' counts it"
    record = {
        **UNKNOWN, "schema": SCHEMA, "attempt": 1, "testbed": TESTBED, "source": bundle.name,
        "experiment_folder": hints.experiment, **values,
        "valid": reason is None, "reason": reason, "warnings": warnings,
        **_numbers(values["test"], pubs, subs, found),
    }  # fmt: skip
    if bundle.metrics:
        record["nodes_top"] = bundle.metrics[0].nodes
        node = bundle.metrics[0].nodes.get(str(values.get("publisher_node")), {})
        record["machine_cpu_percent"] = node.get("cpu_percent_avg")
    numbers = {name: tuple(result.values.values()) for name, result in found.items()}
    return Imported(record | _ids(record, bundle, payload), bundle, numbers)


def _result(log: Log, payload: int | None) -> Result | None:
    return next((result for result in log.results if result.payload_bytes == payload), None)


# --- what was measured -----------------------------------------------------------------------------------

_STATED = ("reliability", "transport", "batch_bytes", "rate", "duration_s", "receive_mode", "qos", "security")


def _stated(pubs: dict[str, Log], subs: dict[str, Log]) -> dict[str, Any]:
    """What the logs say themselves; a publisher's word goes before a subscriber's."""
    said: dict[str, Any] = {}
    for log in (*pubs.values(), *subs.values()):
        settings = log.settings
        for key in _STATED:
            value = getattr(settings, key)
            if value is not None:
                said.setdefault(key, value)
        if settings.mode:
            said.setdefault("test", settings.mode)
        if settings.discovers:
            said.setdefault(settings.discovers[1], settings.discovers[0])
        if len(settings.payloads) == 1:
            said.setdefault("payload_bytes", settings.payloads[0])
        if settings.product:
            said.setdefault("middleware", settings.product[0])
            said.setdefault("middleware_version", settings.product[1])
        if settings.version:
            said.setdefault("perftest_version", settings.version)
        if settings.kind:
            said.setdefault("transport_kind", settings.kind)
    if subs and "subscribers" not in said:
        said["subscribers"] = len(subs)
    return said


def _agreed(hints: Hints, said: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Names and logs together. The log's own word wins; where they disagree a warning says so."""
    for key, value in hints.values.items():
        if key in said and said[key] != value:
            warnings.append(f"name: the folder's name suggests {key} {value}, the log says {said[key]}")
    return {**hints.values, **said}


def _described(values: dict[str, Any], hints: Hints, layout: str) -> dict[str, Any]:
    """The trial's description, whole: what nobody says is PerfTest's default, or null."""
    network = re.sub(r"[^A-Za-z0-9 ._+()-]", "_", str(values.get("network") or "unnamed"))
    mtu = values.get("mtu_bytes")
    label = values.get("label") or (f"{network}-{mtu}" if hints.values.get("mtu_bytes") else network)
    usual = {
        "network": network, "network_label": label, "network_options": {"mtu": mtu} if mtu else {},
        "reliability": "reliable", "transport": "unicast", "publishers": 1, "subscribers": 1,
        "middleware": "connext", "middleware_version": None, "security": "none", "qos": None,
        "batch_bytes": 0, "rate": 0, "discovery": None, "receive_mode": None, "repetition": 0,
        "duration_s": None,
        "payload_bytes": None, "test": None,
    }  # fmt: skip
    found = usual | {key: value for key, value in values.items() if key != "label"}
    found |= {"network": network}
    if layout == K8SDDS:
        found.setdefault("fidelity", "real")
    if hints.variant:
        found["qos"] = ", ".join(filter(None, [found["qos"], hints.variant]))
    return found


def _warnings(bundle: Bundle, logs: dict[str, Log]) -> list[str]:
    found = [f"metrics: {source.path.name}: {source.why}" for source in bundle.metrics if source.why]
    versions = sorted({log.settings.version for log in logs.values() if log.settings.version})
    if len(versions) > 1:
        found.append(f"versions: its participants were PerfTest {' and '.join(versions)}")
    return found


def _ids(record: dict[str, Any], bundle: Bundle, payload: int | None) -> dict[str, str]:
    """cell_id hashes what is measured, as for our own trials; else its place."""
    try:
        cell = Cell(
            label=record["network_label"] if record["network_label"] != record["network"] else None,
            receive_mode=record["receive_mode"] or "listener",
            **{key: record[key] for key in (
                "network", "network_options", "test", "payload_bytes", "reliability", "transport",
                "batch_bytes", "rate", "publishers", "subscribers", "middleware", "security")},
            qos=record["qos"] or "",
        )  # fmt: skip
        identity = cell.cell_id
    except ValueError:
        place = json.dumps([bundle.name, payload])
        identity = hashlib.sha256(place.encode()).hexdigest()[:12]
    return {"cell_id": identity, "trial_id": f"{identity}-{TESTBED}-r{record['repetition']}"}


# --- whether it is valid ---------------------------------------------------------------------------------


def _judge(
    bundle: Bundle,
    pubs: dict[str, Log],
    subs: dict[str, Log],
    values: dict[str, Any],
    found: dict[str, Result],
) -> str | None:
    """Why these logs prove nothing, or None. The first cause, those that explain others before them."""
    logs = {**pubs, **subs} or {name: source.log for name, source in bundle.logs.items() if source.log}
    for name, log in logs.items():
        if log.errors and name not in found:
            return f"error: {name}: {log.errors[0]}"
        if log.exit_code:
            return f"error: {name} ended with exit code {log.exit_code}"
    for name, log in logs.items():
        if name not in found:
            if log.truncated:
                return f"truncated: {name}: its last line has no end and there is no summary"
            if log.problems:
                return f"damaged: {name}: {log.problems[0]}"
    return (
        next((f"damaged: {name}: {log.problems[0]}" for name, log in logs.items() if log.problems), None)
        or (f"contradiction: {bundle.clashes[0]}" if bundle.clashes else None)
        or _contradiction(logs)
        or _incomplete(pubs, subs, values, found)
        or _lost(subs, values, found)
    )


def _contradiction(logs: dict[str, Log]) -> str | None:
    """Participants of one trial must agree on what they measured."""
    for key in ("reliability", "transport", "payloads", "security"):
        said = {name: getattr(log.settings, key) for name, log in logs.items()}
        known = {name: value for name, value in said.items() if value not in (None, ())}
        if len(set(known.values())) > 1:
            (a, x), (b, y) = _differing(known)
            return f"contradiction: {a} says {key} {x}, {b} {y}"
    for name, log in logs.items():
        for result in log.results:
            if log.settings.payloads and result.payload_bytes not in log.settings.payloads:
                sent = log.settings.payloads[0]
                return f"contradiction: {name} has data of {sent} bytes and sums up {result.payload_bytes}"
    return None


def _differing(known: dict[str, Any]) -> tuple[tuple[str, Any], tuple[str, Any]]:
    first = next(iter(known.items()))
    return first, next(item for item in known.items() if item[1] != first[1])


def _incomplete(
    pubs: dict[str, Log], subs: dict[str, Log], values: dict[str, Any], found: dict[str, Result]
) -> str | None:
    """What the test measures must be there, from all that the logs say took part."""
    test = values["test"]
    if test not in ("throughput", "latency"):
        return "unknown-test: neither the logs nor the names say whether it is a throughput or a latency test"
    if values["payload_bytes"] is None:
        return "no-result: there is no summary"
    if subs and len(subs) != values["subscribers"]:
        return f"missing-log: {values['subscribers']} subscribers took part, {len(subs)} left a log"
    if pubs and len(pubs) != values["publishers"]:
        return f"missing-log: {values['publishers']} publishers took part, {len(pubs)} left a log"
    if not (pubs if test == "latency" else subs):
        return f"missing-log: there is no log of a {'publisher' if test == 'latency' else 'subscriber'}"
    lacking = [name for name in (*pubs, *subs) if name not in found]
    if lacking:
        return f"no-result: {lacking[0]} left no summary"
    wrong = [n for n, result in found.items() if (result.kind == "latency") != (n in pubs)]
    if wrong:
        return f"contradiction: {wrong[0]} printed the summary of the other side"
    return None


def _lost(subs: dict[str, Log], values: dict[str, Any], found: dict[str, Result]) -> str | None:
    received = sum(found[name].values["samples"] for name in subs if name in found)
    lost = sum(found[name].values["lost"] for name in subs if name in found)
    if subs and received == 0:
        return "no-samples: nothing was received"
    if values["reliability"] == "reliable" and lost:
        return f"lost-samples: {lost:g} samples of a reliable trial did not arrive"
    return None


# --- numbers ---------------------------------------------------------------------------------------------


def _numbers(
    test: str | None, pubs: dict[str, Log], subs: dict[str, Log], found: dict[str, Result]
) -> dict[str, Any]:
    """Throughput, counts and latencies, null where the test does not measure them."""
    received = [found[name].values for name in subs if name in found and found[name].kind == "throughput"]
    timed = [found[name].values for name in pubs if name in found and found[name].kind == "latency"]
    numbers: dict[str, Any] = {
        "received": _total(received, "samples"),
        "lost": _total(received, "lost"),
        "lost_percent": _mean(received, "lost_percent"),
        "publisher_host_cpu_percent": _mean(timed, "host_cpu_percent"),
        "subscriber_host_cpu_percent": _mean(received, "host_cpu_percent"),
    }
    if test == "throughput":
        numbers["throughput_mbps"] = _mean(received, "throughput_mbps")
        numbers["samples_per_s"] = _mean(received, "samples_per_s")
        if len(timed) == 1:
            numbers |= {f"loaded_latency_{q}_us": timed[0][f"{q}_us"] for q in ("p50", "p90")}
    elif test == "latency" and len(timed) == 1:
        quantities = ("mean", "min", "p50", "p90", "p99", "p9999", "max", "std")
        numbers |= {f"latency_{q}_us": timed[0][f"{q}_us"] for q in quantities}
    return numbers


def _mean(rows: Iterable[dict[str, float]], name: str) -> float | None:
    return aggregate.mean(row.get(name) for row in rows)


def _total(rows: Iterable[dict[str, float]], name: str) -> int | None:
    total = aggregate.total(row.get(name) for row in rows)
    return None if total is None else round(total)
