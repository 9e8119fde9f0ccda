"""Define the background load of a trial: flows between other pods of the same nodes, and busy cores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from k8sdds.system.strict import MAX_RATE_MBIT, Strict, mistake

MAX_FLOWS = 1500
STRESSOR = "stress-ng"
"""The program that keeps cores busy, and the Debian package with it."""


class Background(Strict):
    """Load next to the participants."""

    flows: int = Field(
        default=0,
        ge=0,
        le=MAX_FLOWS,
        description="number of flows from a pod on the node of `pub0` to a pod on the node of `sub0`",
    )
    kind: Literal["udp", "tcp"] = Field(default="udp", description="protocol of the flows")
    rate_mbit: float = Field(
        default=1,
        ge=0,
        le=MAX_RATE_MBIT,
        description="payload rate of each flow in Mbit/s; 0: as much as possible (`tcp`)",
    )
    cpus: list[int] = Field(
        default=[],
        max_length=1024,
        description="cores of the node of `pub0` that one busy process of stress-ng each runs on",
    )

    @model_validator(mode="after")
    def _has_an_effect(self) -> Background:
        if self.kind == "udp" and self.flows and not self.rate_mbit:
            raise mistake("must be above 0 for udp", "rate_mbit")
        if not self.flows and (self.kind, self.rate_mbit) != ("udp", 1):
            raise mistake("is 0, so that kind and rate_mbit have no effect", "flows")
        if len(set(self.cpus)) < len(self.cpus) or any(cpu < 0 for cpu in self.cpus):
            raise mistake("must be different numbers of cores", "cpus")
        return self

    def __bool__(self) -> bool:
        """Return whether there is any load."""
        return bool(self.flows or self.cpus)

    def describe(self) -> str:
        """Describe the load: `99 udp flows of 10 Mbit/s, busy cores 0, 1`."""
        rate = f" of {self.rate_mbit:g} Mbit/s" if self.rate_mbit else ""
        flows = [f"{self.flows} {self.kind} flow{'s' if self.flows > 1 else ''}{rate}"] if self.flows else []
        cores = (
            [f"busy core{'s' if len(self.cpus) > 1 else ''} {', '.join(map(str, self.cpus))}"]
            if self.cpus
            else []
        )
        return ", ".join([*flows, *cores]) or "none"
