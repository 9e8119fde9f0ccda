"""The tidy table: one row per attempt, typed columns, whatever state the run folder is in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from k8sdds.results.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

_TEXT = (
    "trial_id", "cell_id", "testbed", "network", "network_label", "engine", "fidelity", "test",
    "reliability", "transport", "middleware", "middleware_version", "security", "qos", "layout",
    "discovery", "receive_mode", "started_at", "reason", "network_proof",
)  # fmt: skip
_JSON = ("network_options", "placement", "link", "link_bytes", "drops")
_INTEGER = (
    "schema", "attempt", "block", "order", "mtu_bytes", "payload_bytes", "publishers", "subscribers",
    "nodes", "batch_bytes", "repetition", "domain", "sent", "received", "lost", "duplicates",
    "out_of_order", "publisher_rss_bytes", "subscriber_rss_bytes",
)  # fmt: skip
_NUMBER = (
    "rate", "cpu_quota", "duration_s", "warmup_s", "measured_s", "wall_s", "throughput_mbps",
    "samples_per_s", "lost_percent", "latency_mean_us", "latency_p50_us", "latency_p90_us",
    "latency_p99_us", "latency_p9999_us", "latency_max_us", "loaded_latency_p50_us",
    "loaded_latency_p90_us", "publisher_cpu_percent", "subscriber_cpu_percent", "machine_cpu_percent",
    "softirq_percent", "discovery_s", "handshake_s",
    "publisher_host_cpu_percent", "subscriber_host_cpu_percent",
    "publisher_cpu_us_per_sample", "subscriber_cpu_us_per_sample",
    "publisher_cpu_ms_per_mb", "subscriber_cpu_ms_per_mb", "machine_cpu_ms_per_mb",
    "wire_bytes_per_payload_byte",
)  # fmt: skip
_FLAG = ("valid", "includes_scheduling")

COLUMNS = (*_TEXT, *_JSON, *_INTEGER, *_NUMBER, *_FLAG, "warnings")
"""Every key of docs/results.md. Objects are columns of compact JSON text, so that rows can be grouped by
them; their numbers are columns besides: `link_rate_mbit`, `drops_interface_drops` and so on."""

_FLATTENED = ("link", "drops")


def frame(run: RunFolder, parquet: bool = False) -> pd.DataFrame:
    """One row per attempt in the order of its end, with at least the columns of COLUMNS.

    Missing keys and values of the wrong type are null, unknown keys are kept as further columns. Integers
    are Int64, numbers float64, flags boolean (`valid` never null: what is not marked valid is not), the
    rest object. With `parquet` the table is also written to derived/trials.parquet.
    """
    import pandas as pd

    rows = [_row(attempt) for attempt in run.attempts()]
    names = list(COLUMNS) + sorted({name for row in rows for name in row} - set(COLUMNS))
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in _INTEGER:
            columns[name] = pd.array([_integer(value) for value in values], dtype="Int64")
        elif name in _NUMBER or (
            name.startswith(tuple(f"{top}_" for top in _FLATTENED)) and name not in _JSON
        ):
            columns[name] = pd.array([_number(value) for value in values], dtype="float64")
        elif name == "valid":
            columns[name] = pd.array([value is True for value in values], dtype="bool")
        elif name in _FLAG:
            columns[name] = pd.array([_flag(value) for value in values], dtype="boolean")
        else:
            columns[name] = pd.Series(values, dtype="object")
    table = pd.DataFrame(columns)
    if parquet:
        table.to_parquet(run.derived / "trials.parquet", index=False)
    return table


def best(table: pd.DataFrame) -> pd.DataFrame:
    """The last valid attempt of each trial: what statistics are made of. Same columns, index from 0."""
    valid = table[table["valid"]]
    # A stable sort keeps the order of writing where attempt numbers are missing.
    valid = valid.sort_values("attempt", kind="stable", na_position="first")
    return valid.drop_duplicates("trial_id", keep="last").sort_index().reset_index(drop=True)


def _row(attempt: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in attempt.items():
        if key in _TEXT:
            row[key] = None if value is None else str(value)
        elif isinstance(value, dict):
            row[key] = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            if key in _FLATTENED:
                row |= {f"{key}_{name}": item for name, item in value.items()}
        elif key == "warnings":
            row[key] = [str(item) for item in value] if isinstance(value, list) else []
        elif isinstance(value, list):
            row[key] = json.dumps(value, ensure_ascii=False)
        else:
            row[key] = value
    # The unit of comparison and the trial's name must exist, also in folders of others.
    row["network_label"] = row.get("network_label") or row.get("network") or "unnamed"
    row["test"] = row.get("test") or "unknown"
    row["trial_id"] = row.get("trial_id") or f"{row.get('cell_id')}-r{row.get('repetition')}"
    row.setdefault("warnings", [])
    return row


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")


def _integer(value: Any) -> int | None:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    return int(value) if whole else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
