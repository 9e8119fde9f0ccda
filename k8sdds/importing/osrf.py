"""Read the table of OSRF's report on the middleware of ROS 2: `MininetResults.csv` of osrf/TSC-RMW-Reports.

Each row is a run of performance_test between two hosts of Mininet: its settings, and means over the seconds of the run.
Mininet shapes both ends of each link, so that a packet is lost with the probability `loss` when it leaves its host
and again when it leaves the switch. Both are links of k8sdds with this loss in both directions.
"""

from __future__ import annotations

import csv
import io
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from k8sdds.model.impairments import MAX_DELAY_US, Delay, Loss
from k8sdds.model.link import Link
from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.settings import PublishMode, Reliability
from k8sdds.model.trial import AXES, Cell
from k8sdds.results import aggregate
from k8sdds.system.shapes import LIMIT, Shape
from k8sdds.system.strict import MAX_RATE_MBIT, explain

NETWORK = "mininet"
MAX_ROWS = 100_000

PAYLOADS = {"Array1k": 1024, "PointCloud512k": 524_288}
"""Bytes of the array in a message of performance_test. It also has a time, a number and, if a point cloud, a header."""

_MIDDLEWARE = {"rmw_cyclonedds_cpp": "cyclonedds", "rmw_fastrtps_cpp": "fastdds"}
_MODES: dict[str, PublishMode] = {"sync": "synchronous", "async": "asynchronous"}
_RELIABILITIES: dict[str, Reliability] = {"reliable": "reliable", "best_effort": "best-effort"}
_ROS2_DEFAULT = ("reliable", "volatile", "keep_last", 10)
_ROUNDING = 1e-4
"""How much a share in percent can differ from that of the counts in the same row."""

Count = Annotated[int, Field(ge=0, lt=LIMIT)]
Finite = Annotated[float, Field(ge=0, lt=LIMIT, allow_inf_nan=False)]


class Row(Shape, strict=False):
    """The columns of a row that k8sdds uses."""

    rmw_implementation: Literal["rmw_cyclonedds_cpp", "rmw_fastrtps_cpp"]
    async_pub: Literal["sync", "async"]
    bandwidth: Annotated[Finite, Field(gt=0, le=MAX_RATE_MBIT)]
    loss: Annotated[Finite, Field(lt=100)]
    delay: Annotated[Finite, Field(le=MAX_DELAY_US / 1000)]
    message_rate: Annotated[Finite, Field(gt=0, le=MAX_RATE)]
    message_type: Literal["Array1k", "PointCloud512k"]
    reliability: Literal["reliable", "best_effort"]
    durability: Literal["volatile", "transient_local"]
    history_kind: Literal["keep_last", "keep_all"]
    history_depth: Count
    run: str = Field(pattern=r"^run0*[1-9][0-9]{0,3}$")
    sent: Count = Field(alias="pub_sum_sent")
    received: Count = Field(alias="sub_sum_recv")
    lost_percent: Finite = Field(alias="lost_prct")
    latency_ms: Finite = Field(alias="sub_effective_latency")
    interval_s: Annotated[Finite, Field(gt=0)] = Field(alias="pub_mean_T_loop")
    sent_in_interval: Finite = Field(alias="pub_mean_sent")
    publisher_cpu_percent: Finite = Field(alias="pub_mean_cpu_usage (%)")
    subscriber_cpu_percent: Finite = Field(alias="sub_mean_cpu_usage (%)")
    publisher_rss_kib: Finite = Field(alias="pub_mean_ru_maxrss")
    subscriber_rss_kib: Finite = Field(alias="sub_mean_ru_maxrss")

    @model_validator(mode="after")
    def _is_consistent(self) -> Row:
        share = aggregate.ratio(self.sent - self.received, self.sent, 100)
        if share is None or abs(share - self.lost_percent) > _ROUNDING:
            raise ValueError(
                f"lost_prct is {self.lost_percent:g}, but {self.received} of {self.sent} samples arrived"
            )
        return self

    @property
    def link(self) -> Link:
        """The links of both hosts."""
        return Link(
            rate_mbit=self.bandwidth,
            loss=Loss(percent=self.loss),
            delay=Delay(mean_us=1000 * self.delay) if self.delay else None,
        )

    @property
    def cell(self) -> Cell:
        """What was measured; what the table does not state has the default."""
        qos = (self.reliability, self.durability, self.history_kind, self.history_depth)
        return Cell(
            network=NETWORK,
            test="paced",
            payload_bytes=PAYLOADS[self.message_type],
            rate=self.message_rate,
            middleware=_MIDDLEWARE[self.rmw_implementation],
            publish_mode=_MODES[self.async_pub],
            reliability=_RELIABILITIES[self.reliability],
            qos="ros2-default" if qos == _ROS2_DEFAULT else " ".join(map(str, qos[1:])),
            link=self.link,
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """All numbers, in which two runs are never equal."""
        return tuple(value for value in self.model_dump().values() if not isinstance(value, str))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the table states, by key of the record."""
        cell = self.cell
        names = ("payload_bytes", "rate", "middleware", "publish_mode", "reliability", "qos", "link")
        return {
            **{name: AXES[name].recorded(getattr(cell, name)) for name in names},
            "network": NETWORK, "network_label": NETWORK, "network_options": {}, "test": cell.test,
            "publishers": 1, "subscribers": 1, "repetition": int(self.run.removeprefix("run")) - 1,
        }  # fmt: skip

    @property
    def metrics(self) -> dict[str, Any]:
        """What was measured, by key of the record. A run without samples has no delay; the table has 0."""
        achieved = aggregate.ratio(self.sent_in_interval, self.message_rate * self.interval_s, 100)
        return {
            "sent": self.sent, "received": self.received, "lost": self.sent - self.received,
            "lost_percent": self.lost_percent, "achieved_rate_percent": achieved,
            "delay_mean_us": 1000 * self.latency_ms or None,
            "publisher_host_cpu_percent": self.publisher_cpu_percent,
            "subscriber_host_cpu_percent": self.subscriber_cpu_percent,
            "publisher_rss_bytes": round(1024 * self.publisher_rss_kib),
            "subscriber_rss_bytes": round(1024 * self.subscriber_rss_kib),
        }  # fmt: skip


def is_table(data: bytes) -> bool:
    """Return whether a file begins with the header of this table, complete or not."""
    return b"rmw_implementation," in data[:4096].partition(b"\n")[0]


def read(data: bytes) -> tuple[dict[int, Row], list[str]]:
    """Return the rows by line, and a problem for each line that is not a valid row. Never raises an error."""
    text = data.decode("utf-8", errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    reader = csv.DictReader(io.StringIO(text))
    rows: dict[int, Row] = {}
    try:
        names = [str(field.alias or name) for name, field in Row.model_fields.items()]
        if missing := [name for name in names if name not in (reader.fieldnames or ())]:
            return {}, [f"OSRF's table without the columns {', '.join(missing)}"]
        problems = []
        for values in islice(reader, MAX_ROWS):
            try:
                rows[reader.line_num] = Row.model_validate(values)
            except ValidationError as error:
                first = error.errors()[0]
                place = "".join(f"{name} ({str(first['input'])[:40]!r}): " for name in first["loc"])
                problems.append(f"line {reader.line_num}: {place}{explain(first)}")
        if next(reader, None) is not None:
            problems.append(f"more than {MAX_ROWS} rows; the others were not read")
    except csv.Error as error:
        return {}, [f"line {reader.line_num} is not CSV: {error}"]
    return rows, problems
