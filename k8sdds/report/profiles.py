"""Tables of the profiled trials: CPU time by component of the datapath and by network."""

from __future__ import annotations

from k8sdds.analysis.components import COMPONENTS, OTHER
from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.table import Cell, Table
from k8sdds.results.profile import ComponentCost, ProfileSummary
from k8sdds.system.grouping import Row, grouped
from k8sdds.system.perf import CYCLES


def profiled(content: Content) -> list[tuple[Row, ProfileSummary]]:
    """Return the profiled trials with their profiles, by test, then by network."""
    rows = sorted(
        content.profiled,
        key=lambda row: (row["test"], row["payload_bytes"] or 0, content.networks.index(row[UNIT])),
    )
    # The record was checked when it was read.
    return [(row, ProfileSummary.model_validate(row["profile"])) for row in rows if row["profile"]]


def basis(summary: ProfileSummary) -> str:
    """Describe how a profile was taken."""
    how = "cycles counted by the PMU" if summary.event == CYCLES else "cpu-clock: this machine has no PMU"
    return f"{how}; {summary.hertz} samples/s of each core"


def tables(content: Content) -> list[Table]:
    """Return one table per test and payload: components × networks."""
    groups = grouped(profiled(content), lambda pair: (pair[0]["test"], pair[0]["payload_bytes"] or 0))
    return [
        _table(content, f"{test}, {payload(size)}", [row[UNIT] for row, _ in members], [one for _, one in members])
        for (test, size), members in groups.items()
    ]  # fmt: skip


def _table(content: Content, where: str, networks: list[str], summaries: list[ProfileSummary]) -> Table:
    used = [c for c in COMPONENTS if any(c.name in summary.components for summary in summaries)]
    event = " and ".join(dict.fromkeys(map(basis, summaries)))
    per = "cycles per packet" if summaries[0].event == CYCLES else "ns of CPU time per packet"
    totals = {
        "attributed": [formats.percent(summary.attributed_percent, unit=True) for summary in summaries],
        "CPU time": [f"{summary.cpu_s:.2f} s" for summary in summaries],
        "samples": [str(summary.samples) for summary in summaries],
        "packets": ["–" if summary.packets is None else str(summary.packets) for summary in summaries],
    }
    rows = [
        [Cell(c.name, c.description), *(_cell(one.components.get(c.name)) for one in summaries)] for c in used
    ]
    rows += [[Cell(name), *map(Cell, texts)] for name, texts in totals.items()]
    return Table(
        f"CPU time by component in %, {per}: {where}",
        ["component", *networks],
        rows,
        f"{content.testbed} · one trial of each network · {event} · packets: as the publishers' interfaces"
        f" count them, both directions · attributed: all except {OTHER.name}.",
    )


def _cell(cost: ComponentCost | None) -> Cell:
    if cost is None:
        return Cell("0")
    per_packet = cost.ns_per_packet if cost.cycles_per_packet is None else cost.cycles_per_packet
    return Cell(f"{cost.percent:.1f}", "" if per_packet is None else formats.number(per_packet))


def rows(content: Content) -> list[Row]:
    """Return one row per profiled trial and component, for a CSV file."""
    return [
        {
            "network": row[UNIT], "test": row["test"], "payload_bytes": row["payload_bytes"],
            "trial_id": row["trial_id"], "event": summary.event, "component": name, **cost.model_dump(),
            "attributed_percent": summary.attributed_percent,
        }
        for row, summary in profiled(content)
        for name, cost in summary.components.items()
    ]  # fmt: skip
