"""Define `profile` of a record: the CPU time of an attempt by component of the datapath."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from k8sdds.system.shapes import Count, Finite, Integer, Number, Shape

MAX_COMPONENTS = 64


class ComponentCost(Shape):
    """What one component used."""

    percent: Finite
    """Share of all samples of the profile."""
    cpu_ms: Finite
    ns_per_packet: Number = None
    cycles_per_packet: Number = None
    """None if the machine has no PMU."""


class ProfileSummary(Shape):
    """The CPU time of an attempt."""

    event: Annotated[str, Field(max_length=40)]
    hertz: Integer
    samples: Integer
    cpu_s: Finite
    other_programs_cpu_s: Finite
    packets: Count = None
    attributed_percent: Number = None
    components: Annotated[
        dict[Annotated[str, Field(max_length=100)], ComponentCost], Field(max_length=MAX_COMPONENTS)
    ]

    def describe(self) -> str:
        """Describe the profile in one line."""
        largest = sorted(self.components.items(), key=lambda item: -item[1].percent)[:3]
        shares = ", ".join(f"{name} {cost.percent:.0f} %" for name, cost in largest)
        return f"{self.samples} samples of {self.event}, {self.attributed_percent or 0:.1f} % attributed: {shares}"
