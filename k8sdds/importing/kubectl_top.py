"""Read `metrics.csv`: averages of `kubectl top node` over a trial.

The scripts of the K8sDDS paper wrote these files. Each row describes a node: its name, followed by CPU in
millicores (`cpu(cores)`), CPU in percent, memory in MiB (`memory(bytes)`) and memory in percent, each with average,
standard deviation, percentiles, minimum and maximum. The deviation is empty if a node has only one reading.
"""

from __future__ import annotations

import csv
import io
import math
import re

_COLUMN = re.compile(r"(cpu\(cores\)|cpu%|memory\(bytes\)|memory%)\((avg|std|min|max|[0-9]{1,2}%)\)")
_MEASURES = {
    "cpu(cores)": "cpu_millicores", "cpu%": "cpu_percent",
    "memory(bytes)": "memory_mib", "memory%": "memory_percent",
}  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")

Nodes = dict[str, dict[str, float]]


def read(data: bytes) -> tuple[Nodes, list[str]]:
    """Return the values by node, and a list of problems. Never raises an error.

    An example of the values is `{"raspberrypi87": {"cpu_millicores_avg": 1334.68, …}}`. A row that is incomplete
    or contains anything other than numbers is reported as a problem.
    """
    text = data.decode("utf-8", errors="replace")
    whole, _, torn = text.rpartition("\n")
    problems = ["the last line is incomplete"] if torn.strip() else []
    try:
        table = list(csv.reader(io.StringIO(whole.replace("\0", "\N{REPLACEMENT CHARACTER}"))))
    except csv.Error as error:
        return {}, [f"not a CSV table: {error}"]
    if not table or not (names := _names(table[0])):
        return {}, ["not a table of kubectl top"]
    nodes: Nodes = {}
    for number, row in enumerate(table[1:], start=2):
        values = _values(names, row)
        if values is not None and row[0] not in nodes:
            nodes[row[0]] = values
        elif row:
            problems.append(f"line {number} is not a valid row")
    return nodes, problems


def _names(header: list[str]) -> list[str] | None:
    names = []
    for title in header[1:]:
        if not (match := _COLUMN.fullmatch(title.strip())):
            return None
        statistic = match[2].replace("%", "")
        names.append(f"{_MEASURES[match[1]]}_{'p' if statistic.isdigit() else ''}{statistic}")
    return names if names and header[0].strip() == "name" and len(set(names)) == len(names) else None


def _values(names: list[str], row: list[str]) -> dict[str, float] | None:
    if len(row) != len(names) + 1 or not row[0].strip():
        return None
    values = {}
    for name, text in zip(names, row[1:], strict=True):
        if not text and name.endswith("_std"):
            continue
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            return None
        values[name] = float(text)
    return values
