"""Reduce samples of stacks to a profile, and divide its CPU time by component.

A profile contains the work of one attempt: that of the participants and of the network's own programs, and the work on
packets in interrupts and kernel threads. It leaves out idle cores and other programs. `k8sdds-link` is one of these: it
does what links do without CPU time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from k8sdds.analysis import components
from k8sdds.analysis.components import COMPONENTS, OTHER, Component
from k8sdds.results.profile import ComponentCost, ProfileSummary
from k8sdds.system import reading
from k8sdds.system.perf import CPU_CLOCK, CYCLES, LOST, Sample
from k8sdds.system.shapes import Integer, Shape

FILE = "profile.json"
"""In the raw folder of an attempt."""
MAX_STACKS = 100_000
MIN_SAMPLES = 100
"""Samples below which a profile shows nothing."""
MIN_ATTRIBUTED_PERCENT = 90
MAX_MISSING_PERIODS = 20
"""Sampling periods without any sample at the start or end of an interval that was recorded completely."""
MAX_LOST_PERCENT = 1
"""Samples of the interval that perf may have lost. CPU times are too low by this share."""
MAX_PROFILE_BYTES = 64 * 1024 * 1024

Name = Annotated[str, Field(max_length=400)]
Frames = Annotated[list[Name], Field(max_length=128)]
Owner = Callable[[int], str | None]
"""Returns the owner of the process with an id by the names of `components`; None if it has none."""

_INTERRUPT = re.compile(r"asm_(sysvec|common_interrupt|exc_nmi)|el1h?_|run_ksoftirqd|common_interrupt")
_SOFTIRQ = re.compile(r"handle_softirqs|__do_softirq|net_rx_action")
_THREAD = re.compile(r"worker_thread|kthread$|smpboot_thread_fn")


class Stack(Shape):
    """The samples with one stack."""

    owner: str = Field(pattern=r"^[a-z]{1,20}$")
    process: Name
    user: Frames
    kernel: Frames
    samples: Integer
    ns: Integer
    cycles: Integer

    @property
    def component(self) -> Component:
        """What the stack is assigned to."""
        return components.of_stack(self.owner, self.user, self.kernel)


class Profile(Shape):
    """The content of profile.json."""

    events: list[Name]
    hertz: Integer
    window_ns: Integer
    others_ns: Integer
    """CPU time of other programs, including `k8sdds-link`."""
    stacks: Annotated[list[Stack], Field(max_length=MAX_STACKS)]

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(stack.samples for stack in self.stacks)


@dataclass
class _Weights:
    samples: int = 0
    ns: int = 0
    cycles: int = 0

    def add(self, sample: Sample) -> None:
        if sample.event == CYCLES:
            self.cycles += sample.weight
        else:
            self.samples += 1
            self.ns += sample.weight


def reduce(
    samples: Iterable[Sample], events: Iterable[str], hertz: int, start_ns: int, end_ns: int, owner: Owner
) -> Profile:
    """Return the profile of an interval by CLOCK_MONOTONIC, from samples that may be of other times and programs.

    `owner` returns whose process an id belongs to. Raises UnreadableError if the recording does not contain all of the
    interval, or if perf lost samples in it.
    """
    stacks: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], _Weights] = {}
    others_ns = recorded = lost = 0
    first_ns, last_ns = end_ns, start_ns
    for sample in samples:
        first_ns, last_ns = min(first_ns, sample.monotonic_ns), max(last_ns, sample.monotonic_ns)
        if not start_ns <= sample.monotonic_ns < end_ns:
            continue
        if sample.event == LOST:
            lost += sample.weight
            continue
        recorded += 1
        key = _key(sample, owner)
        if key is None:
            others_ns += sample.weight if sample.pid and sample.event == CPU_CLOCK else 0
            continue
        if key not in stacks and len(stacks) >= MAX_STACKS:
            key = (key[0], key[1], (), ("[further stacks]",))
        stacks.setdefault(key, _Weights()).add(sample)
    _require_complete(max(first_ns - start_ns, end_ns - last_ns), hertz, recorded, lost)
    return Profile(
        events=list(events),
        hertz=hertz,
        window_ns=end_ns - start_ns,
        others_ns=others_ns,
        stacks=[
            Stack(owner=owner_name, process=process, user=list(user), kernel=list(kernel),
                  samples=weights.samples, ns=weights.ns, cycles=weights.cycles)
            for (owner_name, process, user, kernel), weights in list(stacks.items())[:MAX_STACKS]
        ],
    )  # fmt: skip


def _require_complete(missing_ns: int, hertz: int, recorded: int, lost: int) -> None:
    # Idle cores are sampled too. perf ends when its file is full, and does not report it by its exit code.
    if missing_ns * hertz > MAX_MISSING_PERIODS * 10**9:
        raise reading.UnreadableError(
            f"perf did not record {missing_ns / 1e9:.1f} s of the measured interval",
            "measure for a shorter time",
        )
    if lost > MAX_LOST_PERCENT / 100 * (recorded + lost):
        raise reading.UnreadableError(
            f"perf lost {lost} of {recorded + lost} samples of the measured interval",
            "use a machine without other work",
        )


def _key(sample: Sample, owner: Owner) -> tuple[str, str, tuple[str, ...], tuple[str, ...]] | None:
    """Return owner, process, user and kernel stack of a sample; None if it is not part of the attempt's work."""
    owned = owner(sample.pid) if sample.pid else None
    if owned is not None and owned != components.LINK:
        return owned, sample.process, sample.user, sample.kernel
    work = _work_on_packets(sample.kernel, owned == components.LINK)
    return (components.INTERRUPTS, components.INTERRUPTS, (), work) if work else None


def _work_on_packets(kernel: tuple[str, ...], of_link: bool) -> tuple[str, ...]:
    """Return the part of a stack of another process that is a softirq after an interrupt, or a kernel thread's work.

    A softirq that another process caused by a system call is its own work. That of `k8sdds-link` (`of_link`) is not:
    the node that its packet reaches processes the packet there, as it does after the interrupt of a real link.
    """
    interrupts = [index for index, name in enumerate(kernel) if _INTERRUPT.match(name)]
    if of_link and not interrupts:
        interrupts = [index for index, name in enumerate(kernel) if _SOFTIRQ.match(name)][:1]
    if interrupts:
        within = kernel[interrupts[-1] :]
        # At the end of an interrupt of an idle core, softirqs of timers run too.
        packets = any(map(_SOFTIRQ.match, within)) and components.of_kernel(within) in components.DATAPATH
        return within if packets else ()
    threads = any(map(_THREAD.match, kernel)) and components.of_kernel(kernel) in components.DATAPATH
    return kernel if threads else ()


def summary(profile: Profile, packets: int | None) -> ProfileSummary:
    """Return the CPU time by component, in the order of `COMPONENTS`.

    `packets` are those that crossed the publishers' interfaces in the interval; None if unknown.
    """
    ns, cycles = dict.fromkeys(COMPONENTS, 0), dict.fromkeys(COMPONENTS, 0)
    for stack in profile.stacks:
        ns[stack.component] += stack.ns
        cycles[stack.component] += stack.cycles
    counted = CYCLES in profile.events
    weights = cycles if counted else ns
    total = sum(weights.values())

    def per_packet(value: int) -> float | None:
        return round(value / packets, 3) if packets else None

    return ProfileSummary(
        event=CYCLES if counted else CPU_CLOCK,
        hertz=profile.hertz,
        samples=profile.samples,
        cpu_s=sum(ns.values()) / 1e9,
        other_programs_cpu_s=profile.others_ns / 1e9,
        packets=packets,
        attributed_percent=round((total - weights[OTHER]) / total * 100, 2) if total else None,
        components={
            component.name: ComponentCost(
                percent=round(weights[component] / total * 100, 3),
                cpu_ms=ns[component] / 1e6,
                ns_per_packet=per_packet(ns[component]),
                cycles_per_packet=per_packet(cycles[component]) if counted else None,
            )
            for component in COMPONENTS
            if weights[component]
        },
    )


def read(folder: Path) -> Profile:
    """Return the profile in the raw folder of an attempt. Raises OSError, or UnreadableError if it is damaged."""
    path = folder / FILE
    document = reading.json_file(path, max_bytes=MAX_PROFILE_BYTES)
    try:
        return Profile.model_validate(document)
    except ValueError as error:
        raise reading.UnreadableError(f"{path} is not a profile") from error


def stacks(profile: Profile) -> Iterator[tuple[list[tuple[str, Component | None]], int]]:
    """Yield each stack, outermost frame first, each frame with its own component, and the weight of the stack."""
    counted = CYCLES in profile.events
    for stack in profile.stacks:
        own = stack.component
        root: list[tuple[str, Component | None]] = [(stack.process, None)]
        user = [(name, own if not stack.kernel else None) for name in stack.user]
        kernel = [(name, components.of_function(name)) for name in stack.kernel]
        yield root + user + kernel, stack.cycles if counted else stack.ns
