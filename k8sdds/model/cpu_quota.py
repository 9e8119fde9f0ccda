"""Define the CPU time that each pod of a trial may use, and its share of busy CPUs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from k8sdds.model.axis import POD, Axis, axes, compact, recorded
from k8sdds.model.settings import Number
from k8sdds.system.strict import Strict, mistake

USUAL_PERIOD_MS = 100.0
"""CFS period: the default of the kernel and of Kubernetes."""
MIN_QUOTA_US = 1000
"""Shortest CPU time in a period that the kernel accepts."""
SHARES_OF_CPU = 1024
"""CPU shares of cgroup v1 for a request of one CPU, in Kubernetes and by default of the kernel."""
NO_QUOTA = "none"


class CpuQuota(Strict):
    """What the kernel limits the CPU time of each pod to: the limit alone, or a mapping."""

    limit: Annotated[float | None, Number, Axis(POD, lambda v: f"{v:g} CPUs per pod", several=False)] = Field(
        default=None,
        gt=0,
        le=64,
        description="number of CPUs that a pod may use, such as `0.3` or `300m`; default: no limit",
    )
    period_ms: Annotated[float, Number, Axis(POD, lambda v: f"period {v:g} ms", since=5, several=False)] = (
        Field(
            default=USUAL_PERIOD_MS,
            ge=1,
            le=1000,
            description="period of the limit, in milliseconds: a pod that has used `limit` × `period_ms` of CPU time"
            " waits until the next one (lab only)",
        )
    )
    burst_ms: Annotated[float, Number, Axis(POD, lambda v: f"burst {v:g} ms", since=5, several=False)] = (
        Field(
            default=0,
            ge=0,
            le=64_000,
            description="unused CPU time of earlier periods that a pod may use in addition, in milliseconds, at most"
            " `limit` × `period_ms` (lab only, Linux 5.14)",
        )
    )
    request: Annotated[
        float | None, Number, Axis(POD, lambda v: f"{v:g} CPUs requested", since=5, several=False)
    ] = Field(
        default=None,
        gt=0,
        le=64,
        description="number of CPUs that a pod requests: its share of busy CPUs. Default: the share of any cgroup in"
        " the lab, `50m` on a cluster",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_limit(cls, value: Any) -> Any:
        if value is None or value == NO_QUOTA:
            return {}
        return value if isinstance(value, dict | CpuQuota) else {"limit": value}

    @model_validator(mode="after")
    def _is_possible(self) -> CpuQuota:
        for name in ("period_ms", "burst_ms") if self.limit is None else ():
            if getattr(self, name) != axes(CpuQuota)[name].default:
                raise mistake("has no effect without limit", name)
        if self.quota_us is not None and self.quota_us < MIN_QUOTA_US:
            least = MIN_QUOTA_US / self.period_us
            raise mistake(f"expected at least {least:g} with a period of {self.period_ms:g} ms", "limit")
        if self.quota_us is not None and self.burst_us > self.quota_us:
            raise mistake(
                f"expected at most {self.quota_us / 1000:g}, which is limit × period_ms", "burst_ms"
            )
        if self.limit is not None and self.request is not None and self.request > self.limit:
            raise mistake("is above the limit", "request")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        whole = handler.resolve_ref_schema(handler(core))
        limit = {key: value for key, value in whole["properties"]["limit"].items() if key == "anyOf"}
        return {"anyOf": [limit["anyOf"][0], {"const": NO_QUOTA}, whole]}

    @property
    def period_us(self) -> int:
        """`period_ms` in the unit of the kernel."""
        return round(self.period_ms * 1000)

    @property
    def burst_us(self) -> int:
        """`burst_ms` in the unit of the kernel."""
        return round(self.burst_ms * 1000)

    @property
    def quota_us(self) -> int | None:
        """CPU time that a pod may use in each period; None without a limit."""
        return None if self.limit is None else round(self.limit * self.period_us)

    def files(self, version: str) -> dict[str, str]:
        """Return the files of a pod's cgroup (`v1` or `v2`) with their content, in the order in which to write them.

        Requests become shares of v1, of which weights of v2 are a linear function, as in Kubernetes.
        """
        v1 = version == "v1"
        found: dict[str, str] = {}
        if self.quota_us is not None and v1:
            found = {"cpu.cfs_period_us": str(self.period_us), "cpu.cfs_quota_us": str(self.quota_us)}
        elif self.quota_us is not None:
            found = {"cpu.max": f"{self.quota_us} {self.period_us}"}
        if self.burst_us:
            found["cpu.cfs_burst_us" if v1 else "cpu.max.burst"] = str(self.burst_us)
        if self.request is not None:
            shares = max(2, int(self.request * SHARES_OF_CPU))
            weight = 1 + (shares - 2) * 9999 // 262142
            found |= {"cpu.shares": str(shares)} if v1 else {"cpu.weight": str(weight)}
        return found

    def __bool__(self) -> bool:
        """Return whether anything is set."""
        return self != CpuQuota()

    def __str__(self) -> str:
        """Return the quota as the tidy table has it."""
        return compact(recorded(self)) if self else NO_QUOTA

    def describe(self) -> str:
        """Describe what is not the default: `0.5 CPUs per pod, burst 50 ms`."""
        phrases = [
            part.describe(value)
            for name, part in axes(CpuQuota).items()
            if (value := getattr(self, name)) != part.default
        ]
        return ", ".join(phrases) or "no CPU limit"
