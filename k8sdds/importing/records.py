"""Build the record of a trial from its logs, and decide whether the trial is valid."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from k8sdds import workloads
from k8sdds.importing.files import Bundle, Source
from k8sdds.importing.layouts import K8SDDS, Hints
from k8sdds.importing.osrf import Row
from k8sdds.middleware.connext import Connext
from k8sdds.model.reason import NO_SAMPLES, Reason
from k8sdds.model.trial import AXES, PUBLISHER, SUBSCRIBER, Cell
from k8sdds.perftest.log import Log, Result
from k8sdds.perftest.rows import LATENCY, THROUGHPUT
from k8sdds.results import aggregate
from k8sdds.results.metrics import IMPORTED
from k8sdds.results.record import COLUMNS, TrialRecord
from k8sdds.results.run_folder import SCHEMA

TESTBED = "imported"

_COMMON: dict[str, Any] = {
    **{name: None for name, column in COLUMNS.items() if column.only in ("", IMPORTED)},
    "schema": SCHEMA, "attempt": 1, "testbed": TESTBED,
}  # fmt: skip
"""Every key of an imported trial; a log may not contain all of those that are None."""


@dataclass
class Imported:
    """One trial of the published folder."""

    record: TrialRecord
    bundle: Bundle
    numbers: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """All numbers in the results, by participant. They are used to find copies."""
    set_aside: bool = False
    """Whether the names of its folders mark it as a backup, which the user may include nevertheless."""

    def invalidate(self, reason: Reason) -> None:
        """Mark the trial as invalid, unless it already is."""
        if self.record.valid:
            self.record.invalidate(reason)

    def warn(self, text: str) -> None:
        """Add a warning."""
        self.record.warnings = [*(self.record.warnings or ()), text]


def records(bundle: Bundle, hints: Hints, layout: str) -> list[Imported]:
    """Return the trials of a bundle: one trial, or one for each payload of a scan. Ids may not be unique."""
    logs = {name: source.log for name, source in bundle.logs.items() if source.log is not None}
    payloads = sorted({result.payload_bytes for log in logs.values() for result in log.results})
    stated = sorted({payload for log in logs.values() for payload in log.settings.payloads})
    scanned: list[int] | list[None] = payloads or stated or [None]
    return [_record(bundle, logs, hints, layout, payload) for payload in scanned]


def of_row(table: Source, line: int, row: Row) -> Imported:
    """Return the trial in a row of a table. Ids may not be unique."""
    bundle = Bundle(table.path, f"line {line}", table=table)
    cell_id, settings = row.cell.cell_id, row.settings
    record = {
        **_COMMON, "source": bundle.name, "valid": True,
        "cell_id": cell_id, "trial_id": f"{cell_id}-{TESTBED}-r{settings['repetition']}",
        **settings, **row.metrics,
    }  # fmt: skip
    trial = Imported(TrialRecord.read(record), bundle, {"row": row.numbers})
    if table.why:
        trial.warn(f"table: {table.path}: {table.why}")
    if not row.received:
        trial.warn(
            "loss: no sample arrived; the publisher and the subscriber possibly did not find each other"
        )
    return trial


def _record(bundle: Bundle, logs: dict[str, Log], hints: Hints, layout: str, payload: int | None) -> Imported:
    pubs = {name: log for name, log in logs.items() if bundle.logs[name].role == PUBLISHER}
    subs = {name: log for name, log in logs.items() if bundle.logs[name].role == SUBSCRIBER}
    warnings = _warnings(bundle, logs)
    stated = _stated(pubs, subs) | ({"payload_bytes": payload} if payload is not None else {})
    values = _description(_merged(hints, stated, warnings), hints, layout)
    results = {name: result for name, log in logs.items() if (result := _result(log, payload))}
    reason = _invalid(bundle, pubs, subs, values, results)
    if hints.set_aside and not hints.keep and reason is None:
        reason = Reason(
            "set-aside", f"{hints.set_aside!r} marks it as a backup; to include it: --map 'GLOB:keep=yes'"
        )
    record = {
        **_COMMON, "source": bundle.name, "experiment_folder": hints.experiment, **values,
        "valid": reason is None, "reason": str(reason) if reason else None, "warnings": warnings,
        **_numbers(values["test"], pubs, subs, results),
    }  # fmt: skip
    if bundle.metrics:
        record["nodes_top"] = bundle.metrics[0].nodes
        node = bundle.metrics[0].nodes.get(str(values.get("publisher_node")), {})
        record["machine_cpu_percent"] = node.get("cpu_percent_avg")
    numbers = {name: tuple(result.values.values()) for name, result in results.items()}
    return Imported(
        TrialRecord.read(record | _ids(record, bundle, payload)), bundle, numbers, bool(hints.set_aside)
    )


def _result(log: Log, payload: int | None) -> Result | None:
    return next((result for result in log.results if result.payload_bytes == payload), None)


# --- what was measured -----------------------------------------------------------------------------------

_STATED = ("reliability", "transport", "batch_bytes", "rate", "duration_s", "receive_mode", "qos", "security")


def _stated(pubs: dict[str, Log], subs: dict[str, Log]) -> dict[str, Any]:
    """Return the settings in the logs. A publisher's log takes precedence."""
    stated: dict[str, Any] = {"subscribers": len(subs)} if subs else {}
    for log in reversed((*pubs.values(), *subs.values())):
        settings = log.settings
        known = {key: getattr(settings, key) for key in _STATED}
        known |= {"perftest_version": settings.version or None, "transport_kind": settings.kind or None}
        if settings.mode:
            known["test"] = workloads.of_mode(settings.mode)
        if settings.discovers:
            known[settings.discovers[1]] = settings.discovers[0]
        if len(settings.payloads) == 1:
            known["payload_bytes"] = settings.payloads[0]
        if settings.product:
            known["middleware"], known["middleware_version"] = settings.product
        stated |= {key: value for key, value in known.items() if value is not None}
    return stated


def _merged(hints: Hints, stated: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Merge the settings from names and logs. Logs take precedence, and each difference adds a warning."""
    for key, value in hints.values.items():
        if key in stated and stated[key] != value:
            warnings.append(f"name: the folder name suggests {key} {value}, the log states {stated[key]}")
    return {**hints.values, **stated}


def _description(values: dict[str, Any], hints: Hints, layout: str) -> dict[str, Any]:
    """Return the complete description. Missing settings get PerfTest's default if there is one, otherwise None."""
    network = re.sub(r"[^A-Za-z0-9 ._+()-]", "_", str(values.get("network") or "unnamed"))
    mtu = values.get("mtu_bytes")
    label = values.get("label") or (f"{network}-{mtu}" if hints.values.get("mtu_bytes") else network)
    defaults: dict[str, Any] = {
        "network": network, "network_label": label, "network_options": {"mtu": mtu} if mtu else {},
        "reliability": "reliable", "transport": "unicast", "publishers": 1, "subscribers": 1,
        "middleware": Connext.name, "middleware_version": None, "security": "none", "qos": None,
        "batch_bytes": 0, "rate": 0, "discovery": None, "receive_mode": None, "repetition": 0,
        "duration_s": None, "payload_bytes": None, "test": None,
    }  # fmt: skip
    description = defaults | {key: value for key, value in values.items() if key != "label"}
    description["network"] = network
    if layout == K8SDDS:
        description.setdefault("fidelity", "real")
    if hints.variant:
        description["qos"] = ", ".join(filter(None, [description["qos"], hints.variant]))
    return description


def _warnings(bundle: Bundle, logs: dict[str, Log]) -> list[str]:
    warnings = [f"metrics: {source.path.name}: {source.why}" for source in bundle.metrics if source.why]
    versions = sorted({log.settings.version for log in logs.values() if log.settings.version})
    if len(versions) > 1:
        warnings.append(f"versions: the participants ran PerfTest {' and '.join(versions)}")
    return warnings


def _ids(record: dict[str, Any], bundle: Bundle, payload: int | None) -> dict[str, str]:
    """Return `cell_id` and `trial_id`; if the cell is incomplete, its id is a hash of the path of its logs."""
    label = record["network_label"] if record["network_label"] != record["network"] else None
    known = {name: record[name] for name in (*AXES, "network_options") if record.get(name) is not None}
    try:
        identity = Cell(label=label, **known).cell_id
    except ValueError:
        place = json.dumps([bundle.name, payload])
        identity = hashlib.sha256(place.encode()).hexdigest()[:12]
    return {"cell_id": identity, "trial_id": f"{identity}-{TESTBED}-r{record['repetition']}"}


# --- whether it is valid ---------------------------------------------------------------------------------


def _invalid(
    bundle: Bundle,
    pubs: dict[str, Log],
    subs: dict[str, Log],
    values: dict[str, Any],
    results: dict[str, Result],
) -> Reason | None:
    """Return why the trial is not valid, or None. Causes are checked before their consequences."""
    logs = {**pubs, **subs} or {name: source.log for name, source in bundle.logs.items() if source.log}
    for name, log in logs.items():
        if log.errors and name not in results:
            return Reason("error", f"{name}: {log.errors[0]}")
        if log.exit_code:
            return Reason("error", f"{name} ended with exit code {log.exit_code}")
    for name, log in logs.items():
        if name not in results:
            if log.truncated:
                return Reason("truncated", f"{name}: the last line is incomplete and there is no summary")
            if log.problems:
                return Reason("damaged", f"{name}: {log.problems[0]}")
    for name, log in logs.items():
        if log.problems:
            return Reason("damaged", f"{name}: {log.problems[0]}")
    return (
        (Reason("contradiction", bundle.clashes[0]) if bundle.clashes else None)
        or _contradiction(logs)
        or _incomplete(pubs, subs, values, results)
        or _lost(subs, values, results)
    )


def _contradiction(logs: dict[str, Log]) -> Reason | None:
    """Return a message if the logs of a trial contradict each other, or None."""
    for key in ("reliability", "transport", "payloads", "security"):
        stated = {name: getattr(log.settings, key) for name, log in logs.items()}
        known = {name: value for name, value in stated.items() if value not in (None, ())}
        if len(set(known.values())) > 1:
            (a, x), *others = known.items()
            b, y = next(other for other in others if other[1] != x)
            return Reason("contradiction", f"{a} states {key} {x}, {b} states {y}")
    for name, log in logs.items():
        for result in log.results:
            if log.settings.payloads and result.payload_bytes not in log.settings.payloads:
                sent = log.settings.payloads[0]
                return Reason(
                    "contradiction", f"{name} sent {sent} bytes, its summary is of {result.payload_bytes}"
                )
    return None


def _incomplete(
    pubs: dict[str, Log], subs: dict[str, Log], values: dict[str, Any], results: dict[str, Result]
) -> Reason | None:
    """Return a message if the log or summary of a participant is missing, or None."""
    test = values["test"]
    workload = workloads.WORKLOADS.get(test)
    if workload is None:
        return Reason(
            "unknown-test", "neither logs nor names state the test: --map 'GLOB:test=throughput', or latency"
        )
    if values["payload_bytes"] is None:
        return Reason("no-result", "there is no summary")
    for role, logs in (("subscribers", subs), ("publishers", pubs)):
        if logs and len(logs) != values[role]:
            return Reason("missing-log", f"{values[role]} {role} took part, {len(logs)} left a log")
    if not (pubs if workload.measured_by == PUBLISHER else subs):
        return Reason("missing-log", f"there is no log of a {workload.measured_by}")
    missing = [name for name in (*pubs, *subs) if name not in results]
    if missing:
        return Reason("no-result", f"{missing[0]} left no summary")
    wrong = [name for name, result in results.items() if (result.kind == LATENCY) != (name in pubs)]
    if wrong:
        return Reason("contradiction", f"{wrong[0]} printed the summary of the other role")
    return None


def _lost(subs: dict[str, Log], values: dict[str, Any], results: dict[str, Result]) -> Reason | None:
    received = sum(results[name].values["samples"] for name in subs if name in results)
    lost = sum(results[name].values["lost"] for name in subs if name in results)
    if subs and received == 0:
        return Reason(NO_SAMPLES, "no sample was received")
    if values["reliability"] == "reliable" and lost:
        return Reason("lost-samples", f"{lost:g} samples of a reliable trial did not arrive")
    return None


# --- numbers ---------------------------------------------------------------------------------------------


def _numbers(
    test: str | None, pubs: dict[str, Log], subs: dict[str, Log], results: dict[str, Result]
) -> dict[str, Any]:
    """Return the throughput, counts and latencies that the test measures."""
    received = [results[name].values for name in subs if name in results and results[name].kind == THROUGHPUT]
    timed = [results[name].values for name in pubs if name in results and results[name].kind == LATENCY]
    numbers: dict[str, Any] = {
        "received": _total(received, "samples"),
        "lost": _total(received, "lost"),
        "lost_percent": _mean(received, "lost_percent"),
        "publisher_host_cpu_percent": _mean(timed, "host_cpu_percent"),
        "subscriber_host_cpu_percent": _mean(received, "host_cpu_percent"),
    }
    workload = workloads.WORKLOADS.get(test) if test else None
    return numbers | (workload.from_logs(received, timed) if workload else {})


def _mean(rows: Iterable[dict[str, float]], name: str) -> float | None:
    return aggregate.mean(row.get(name) for row in rows)


def _total(rows: Iterable[dict[str, float]], name: str) -> int | None:
    total = aggregate.total(row.get(name) for row in rows)
    return None if total is None else round(total)
