"""Define what a link does to the packets of one direction: delay, loss, rate, queue, duplicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator
from typing_extensions import override

from k8sdds.model.settings import Number
from k8sdds.system.strict import MAX_RATE_MBIT, Strict, mistake

MAX_DELAY_US = 60_000_000
MAX_QUEUE_PACKETS, MAX_QUEUE_BYTES, MAX_QUEUE_MS = 1_000_000, 1 << 30, 60_000
"""Largest queues: bufferbloat of cellular links is a few seconds and a few MiB (Jiang et al., 2012,
DOI 10.1145/2342468.2342478), so that these limits reject slips of the keyboard alone."""
MAX_NETEM_JITTER_US = 1_200_000
"""netem limits its parameter to 2.1 s, which is up to 1.73 times the standard deviation."""
DropPolicy = Literal["drop-tail", "codel"]
Distribution = Literal["normal", "uniform", "pareto"]


class FromFile(Strict):
    """An impairment that a file may describe. The content, not the place of the file, is part of the ids."""

    values: ClassVar[str] = ""
    """What the file states, for messages."""
    example: ClassVar[str] = ""

    file: str = Field(default="", max_length=4096, description="file, relative to the file that names it")
    sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="SHA-256 of the file, which k8sdds fills in; a file with another content is refused",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_a_mapping(cls, value: Any) -> Any:
        if not isinstance(value, dict | cls):
            raise ValueError(f"must be a mapping, such as {cls.example}")
        return value

    @property
    def is_from_file(self) -> bool:
        """Whether a file describes it."""
        return bool(self.file or self.sha256)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not self.is_from_file:
            self._require_values()
            return self
        set_too = [
            name
            for name, field in type(self).model_fields.items()
            if name not in (*FromFile.model_fields, "udp_only") and getattr(self, name) != field.default
        ]
        if set_too:
            raise mistake(f"the file states the {self.values}: leave out {', '.join(set_too)}", "file")
        return self

    def _require_values(self) -> None:
        """Raise an error if values that are not from a file are missing, or contradict each other."""

    def _source(self) -> str:
        return f"from {self.file.rpartition('/')[2] or self.sha256[:8]}"


class Delay(FromFile):
    """One-way delay of each packet."""

    values: ClassVar[str] = "delays"
    example: ClassVar[str] = "{mean_us: 2000}"

    mean_us: Annotated[float, Number] = Field(
        default=0, ge=0, le=MAX_DELAY_US, description="mean, in microseconds"
    )
    jitter_us: Annotated[float, Number] = Field(
        default=0,
        ge=0,
        le=MAX_DELAY_US,
        description="jitter: the standard deviation of the delays. At most the mean, but for `pareto`",
    )
    distribution: Distribution = Field(
        default="normal", description="distribution of the delay; `pareto` has a long tail"
    )
    correlation_percent: Annotated[float, Number] = Field(
        default=0, ge=0, lt=100, description="correlation of the delays of consecutive packets"
    )
    reorder_percent: Annotated[float, Number] = Field(
        default=0, ge=0, lt=100, description="share of the packets that overtake others: they are not delayed"
    )

    @override
    def _require_values(self) -> None:
        if self.jitter_us and not self.mean_us:
            raise mistake("needs mean_us: a delay is never negative", "jitter_us")
        if self.jitter_us > self.mean_us and self.distribution != "pareto":
            raise mistake(f"is above mean_us ({self.mean_us:g}), but a delay is never negative", "jitter_us")
        if self.distribution != "normal" and not self.jitter_us:
            raise mistake("has no effect without jitter_us", "distribution")
        if self.correlation_percent and not self.jitter_us:
            raise mistake("has no effect without jitter_us", "correlation_percent")
        if self.reorder_percent and not self.mean_us:
            raise mistake("needs mean_us: without a delay, no packet overtakes another", "reorder_percent")

    def describe(self) -> str:
        """Describe the delay: `2 ms ± 0.5 ms delay`."""
        if self.is_from_file:
            return f"delay {self._source()}"
        if not self.mean_us:
            return "no delay"
        jitter = f" ± {duration(self.jitter_us)}" if self.jitter_us else ""
        shape = f" ({self.distribution})" if self.distribution != "normal" else ""
        correlation = f", correlation {self.correlation_percent:g} %" if self.correlation_percent else ""
        reordered = f", {self.reorder_percent:g} % reordered" if self.reorder_percent else ""
        return f"{duration(self.mean_us)}{jitter} delay{shape}{correlation}{reordered}"


class Loss(FromFile):
    """Loss of packets: independent, in bursts, or as recorded."""

    values: ClassVar[str] = "lost packets"
    example: ClassVar[str] = "{percent: 1}"

    percent: Annotated[float | None, Number] = Field(
        default=None, ge=0, lt=100, description="share of lost packets, each independent of the others"
    )
    p_percent: Annotated[float | None, Number] = Field(
        default=None,
        ge=0,
        le=100,
        description="bursts by the model of Gilbert and Elliott: probability that the link becomes bad with a packet",
    )
    r_percent: Annotated[float | None, Number] = Field(
        default=None, gt=0, le=100, description="probability that a bad link becomes good again with a packet"
    )
    h_percent: Annotated[float, Number] = Field(
        default=0, ge=0, lt=100, description="packets that arrive while the link is bad"
    )
    k_percent: Annotated[float, Number] = Field(
        default=100, gt=0, le=100, description="packets that arrive while the link is good"
    )
    udp_only: bool = Field(default=False, description="whether only UDP packets are lost")

    @override
    def _require_values(self) -> None:
        bursts = self.p_percent is not None
        if bursts != (self.r_percent is not None):
            missing, given = ("r_percent", "p_percent") if bursts else ("p_percent", "r_percent")
            raise mistake(f"needs {missing} too: they are the two transitions of one model", given)
        if self.percent is not None and bursts:
            raise mistake("is independent loss: leave it out, or p_percent and r_percent", "percent")
        if not bursts and (self.h_percent, self.k_percent) != (0, 100):
            raise mistake("needs p_percent and r_percent", "h_percent" if self.h_percent else "k_percent")
        if bursts and self.h_percent >= self.k_percent:
            raise mistake(
                f"must be below k_percent ({self.k_percent:g}): fewer packets arrive while the link is bad",
                "h_percent",
            )
        if not bursts and self.percent is None:
            raise mistake("set percent, or p_percent and r_percent, or file")

    @property
    def states(self) -> tuple[float, float, float, float]:
        """The same as p, r, h and k of Gilbert and Elliott, in percent; independent loss has one packet in a state."""
        if self.p_percent is not None and self.r_percent is not None:
            return self.p_percent, self.r_percent, self.h_percent, self.k_percent
        percent = self.percent or 0
        return percent, 100 - percent, 0, 100

    @property
    def mean_percent(self) -> float | None:
        """The expected share of lost packets; None: a file states it."""
        if self.is_from_file:
            return None
        p, r, h, k = self.states
        bad = p / (p + r)
        return bad * (100 - h) + (1 - bad) * (100 - k)

    def describe(self) -> str:
        """Describe the loss: `1 % loss`, `bursts of loss (p 1 %, r 25 %)`."""
        kind = "loss of UDP" if self.udp_only else "loss"
        if self.is_from_file:
            return f"{kind} {self._source()}"
        if self.p_percent is None:
            return f"{self.percent:g} % {kind}" if self.percent else f"no {kind}"
        names = {"h": self.h_percent, "k": self.k_percent}
        others = "".join(
            f", {name} {value:g} %" for name, value in names.items() if value != {"h": 0, "k": 100}[name]
        )
        return f"bursts of {kind} (p {self.p_percent:g} %, r {self.r_percent:g} %{others})"


class Rate(FromFile):
    """Rate: constant, or as recorded."""

    values: ClassVar[str] = "rate"
    example: ClassVar[str] = "{mbit: 10}"

    mbit: Annotated[float | None, Number] = Field(
        default=None, gt=0, le=MAX_RATE_MBIT, description="constant rate, in Mbit/s"
    )

    @override
    def _require_values(self) -> None:
        if self.mbit is None:
            raise mistake("set mbit or file")

    def describe(self) -> str:
        """Describe the rate: `54 Mbit/s`."""
        return f"rate {self._source()}" if self.is_from_file else f"{self.mbit:g} Mbit/s"


class Queue(Strict):
    """What waits for a link with a rate."""

    packets: Annotated[int | None, Number] = Field(
        default=None, ge=1, le=MAX_QUEUE_PACKETS, description="its size in packets"
    )
    bytes: Annotated[int | None, Number] = Field(
        default=None, ge=1514, le=MAX_QUEUE_BYTES, description="its size in bytes, at least one packet"
    )
    ms: Annotated[float | None, Number] = Field(
        default=None,
        gt=0,
        le=MAX_QUEUE_MS,
        description="its size as the time that the rate needs to empty it",
    )
    discipline: DropPolicy = Field(
        default="drop-tail",
        description="what is dropped: packets that find it full; or also those that `codel` (RFC 8289) selects"
        " while packets wait too long",
    )

    @model_validator(mode="after")
    def _has_one_size(self) -> Self:
        sizes = [name for name in ("packets", "bytes", "ms") if getattr(self, name) is not None]
        if len(sizes) != 1:
            given = f", not {' and '.join(sizes)}" if sizes else ""
            raise mistake(f"set one of packets, bytes and ms{given}", *sizes[1:2])
        return self

    def describe(self) -> str:
        """Describe the queue: `queue of 100 packets (codel)`."""
        sizes = ((self.packets, "packets"), (self.bytes, "bytes"), (self.ms, "ms"))
        (size,) = (f"{value:g} {unit}" for value, unit in sizes if value is not None)
        return f"queue of {size}" + (f" ({self.discipline})" if self.discipline != "drop-tail" else "")


class Direction(Strict):
    """What happens to packets in one direction. A part that is left out is that of both directions."""

    delay: Delay | None = Field(default=None, description="one-way delay")
    loss: Loss | None = Field(default=None, description="loss of packets")
    rate: Rate | None = Field(default=None, description="rate, constant or from a file in Mahimahi's format")
    queue: Queue | None = Field(default=None, description="queue in front of a rate")
    duplicate_percent: Annotated[float | None, Number] = Field(
        default=None, ge=0, lt=100, description="share of the packets that arrive twice"
    )

    def over(self, both: Direction) -> Direction:
        """Return this direction, with the parts of both for those that it leaves out."""
        return Direction(
            **{
                name: mine if (mine := getattr(self, name)) is not None else getattr(both, name)
                for name in PARTS
            }
        )

    def describe(self) -> str:
        """Describe what is set, in the order of the keys: `2 ms delay, 1 % loss`."""
        return ", ".join(
            phrase(name, getattr(self, name)) for name in PARTS if getattr(self, name) is not None
        )

    @property
    def netem_obstacle(self) -> str:
        """What netem cannot do, or would do differently, such as `loss is …`; empty if it does all that is set."""
        for part in ("delay", "loss", "rate"):
            value = getattr(self, part)
            if value is not None and value.is_from_file:
                return f"{part} comes from a file, and netem repeats no recordings"
        delay, loss = self.delay, self.loss
        if loss and loss.udp_only:
            return "loss is of UDP only, and netem loses all packets alike"
        if loss and loss.mean_percent and self.duplicate_percent:
            return (
                "loss is changed by duplicate_percent, because netem may lose a packet that it has duplicated"
            )
        if delay and delay.correlation_percent:
            return "delay is correlated, but delays of netem are not, whatever correlation it has"
        if delay and delay.reorder_percent and self.rate:
            return "delay reorders packets, and those that overtake others in netem do not wait for the rate"
        if delay and delay.jitter_us > MAX_NETEM_JITTER_US:
            return f"delay has a jitter above {MAX_NETEM_JITTER_US / 1e6:g} s, the largest that netem keeps"
        return ""


PARTS = tuple(Direction.model_fields)
"""The impairments of a direction."""


def phrase(name: str, value: Any) -> str:
    """Describe an impairment of a direction."""
    return f"{value:g} % duplicates" if name == "duplicate_percent" else str(value.describe())


M = TypeVar("M", bound=Strict)


def with_files(model: M, place: Callable[[FromFile], dict[str, str]]) -> M:
    """Return a link or direction with other values of `file` and `sha256`, which `place` returns for each file."""
    changed: dict[str, Strict] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, FromFile) and value.is_from_file:
            changed[name] = value.model_copy(update=place(value))
        elif isinstance(value, Direction) and (placed := with_files(value, place)) != value:
            changed[name] = placed
    return model.model_copy(update=changed) if changed else model


def duration(us: float) -> str:
    """Format a time in the unit that people would choose: `500 µs`, `2 ms`."""
    return f"{us / 1000:g} ms" if us >= 1000 else f"{us:g} µs"
