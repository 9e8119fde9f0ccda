"""Read how far the clocks of nodes can be wrong, from the programs that synchronize them.

chrony and ptp4l each know a bound of their own error, relative to true time (chrony) or to the grandmaster (ptp4l). The
clocks of two nodes with the same reference differ by at most the sum of their bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from k8sdds.deploy.scripts import shell
from k8sdds.model.measurement import ClockState
from k8sdds.system.ssh import Connections, Host

TIMEOUT_S = 10

SCRIPT = shell("clock")
"""Prints the name of the program that synchronizes the clock and its state; nothing if there is no such program."""

_PTP4L_KEYS = {
    "gmPresent", "gmIdentity", "master_offset", "offsetFromMaster", "meanPathDelay", "portState", "timestamping",
}  # fmt: skip

_LOCAL_REFERENCE = "7F7F0101"
"""chrony's reference id of a clock that follows no other clock."""

TRUE_TIME = "true time"
"""The reference of chrony's bound."""

_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,12})?")


def read(connections: Connections, nodes: Iterable[str]) -> dict[str, ClockState]:
    """Return the state of the clock of each node; a node that cannot be reached has no bound."""

    def read_one(host: Host) -> ClockState:
        return parse(host.run(SCRIPT, timeout_s=TIMEOUT_S).out)

    states, failures = connections.each(read_one, nodes)
    return states | {node: ClockState(reason=str(error).splitlines()[0]) for node, error in failures.items()}


def parse(output: str) -> ClockState:
    """Parse the output of `SCRIPT`. Output of another form gives a state without a bound, and the reason."""
    program, _, report = output.strip().partition("\n")
    if not program:
        return ClockState(reason="neither chronyd nor ptp4l synchronizes its clock")
    parsers = {"chrony": _chrony_error, "ptp4l": _ptp4l_error}
    if program not in parsers:
        return ClockState(reason=f"unknown output: {_shown(output)}")
    try:
        error_s, reference = parsers[program](report)
    except ValueError as error:
        return ClockState(program, reason=f"{program}: {error}")
    return ClockState(program, error_s * 1e6, reference)


def _chrony_error(report: str) -> tuple[float, str]:
    """Return the bound that chrony documents: root dispersion + root delay / 2 + |system offset|."""
    match report.strip().split(","):
        # The fields of `chronyc -c tracking`.
        case [reference_id, _, _, _, offset, _, _, _, _, _, delay, dispersion, _, leap_status]:
            pass
        case _:
            raise ValueError(_shown(report) or "no output")
    if leap_status == "Not synchronised":
        raise ValueError("its clock is not synchronized")
    if leap_status not in ("Normal", "Insert second", "Delete second"):
        raise ValueError(_shown(report))
    if reference_id == _LOCAL_REFERENCE:
        raise ValueError("its clock follows no other clock (local reference)")
    delay_s, dispersion_s = _number(delay), _number(dispersion)
    if dispersion_s < 0:
        raise ValueError(_shown(report))
    # A root delay can be slightly negative on short paths.
    return dispersion_s + abs(delay_s) / 2 + abs(_number(offset)), TRUE_TIME


def _ptp4l_error(report: str) -> tuple[float, str]:
    """Return |offset from the master| + mean path delay: how far an asymmetric path can move the offset.

    The grandmaster itself has no error.
    """
    words = (line.split() for line in report.splitlines())
    values = {pair[0]: pair[1] for pair in words if len(pair) == 2}
    if not values.keys() >= _PTP4L_KEYS:
        raise ValueError(_shown(report) or "no output")
    if values["timestamping"] != "SOFTWARE":
        raise ValueError(
            "it sets the clock of the network card, which may differ from the system clock;"
            " let chrony follow that clock (refclock PHC)"
        )
    grandmaster = values["gmIdentity"]
    if values["gmPresent"] == "false" and values["portState"] == "MASTER":
        return 0.0, grandmaster
    if values["gmPresent"] != "true" or values["portState"] != "SLAVE":
        raise ValueError(f"its clock is not synchronized (port state {_shown(values['portState'])})")
    delay_ns = _number(values["meanPathDelay"])
    if delay_ns <= 0:
        raise ValueError("it has not measured the path delay yet")
    offset_ns = max(abs(_number(values["offsetFromMaster"])), abs(_number(values["master_offset"])))
    return (offset_ns + delay_ns) / 1e9, grandmaster


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(f"not a number: {_shown(text)}")
    return float(text)


def _shown(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:120]
