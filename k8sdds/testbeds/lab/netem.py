"""Impair a direction of a link with the kernel's queues: netem, with a rate behind it; and read their counters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from k8sdds.model.impairments import Delay, Direction, Loss, Queue, Rate
from k8sdds.testbeds.link_emulation import USUAL_QUEUE, netem_delay

LIMIT = 1_000_000
"""Packets that netem holds while they are delayed; the queue of the rate is a queue of its own."""
HEADER_BYTES = 18
"""Ethernet header with a VLAN tag, which counts in the queues."""
BURST_S = 0.000_25
"""Token bucket of a rate: what it sends at once after a pause, so that a late timer does not lower the rate."""
MIN_BURST_FRAMES = 2
IN_ORDER = "rate 400gbit"
"""netem keeps the order of packets only if it has a rate. This one delays a frame by 30 ns."""
SPLITTING = "tbf rate 400gbit"
"""A token bucket with room for one frame splits large packets. Without it, the kernel splits those of TCP and of
UDP_SEGMENT behind the queues of a device, also if all offloads are off."""


def queues(device: str, direction: Direction, mtu: int) -> tuple[str, ...]:
    """Return the commands for `tc -batch` that impair what a device sends.

    Large packets are split. Each is lost or duplicated, then delayed, then it waits for the rate: netem passes packets
    on to its child when their delay is over (tc-netem(8)).
    """
    delay, rate = direction.delay, direction.rate
    words = [
        _delay(delay) if delay else "",
        _loss(direction.loss) if direction.loss else "",
        f"duplicate {direction.duplicate_percent:g}%" if direction.duplicate_percent else "",
        IN_ORDER if rate and delay and delay.jitter_us else "",
    ]
    if not any(words) and not rate:
        return ()
    netem, frame_bytes = " ".join(word for word in words if word), mtu + HEADER_BYTES
    lines = [
        f"qdisc replace dev {device} root handle 3: {SPLITTING} burst {frame_bytes} limit {frame_bytes}",
        f"qdisc add dev {device} parent 3:1 handle 1: netem limit {LIMIT} {netem}".rstrip(),
    ]
    if rate:
        lines += _rate(device, rate, direction.queue or USUAL_QUEUE, frame_bytes)
    return tuple(lines)


def _delay(delay: Delay) -> str:
    mean_us, jitter_us = netem_delay(delay)
    words = [f"delay {mean_us:.0f}us"]
    if jitter_us:
        words.append(f"{jitter_us:.0f}us")
        # Without a table, netem's delays are evenly distributed.
        if delay.distribution != "uniform":
            words.append(f"distribution {delay.distribution}")
    if delay.reorder_percent:
        words.append(f"reorder {delay.reorder_percent:g}%")
    return " ".join(words)


def _loss(loss: Loss) -> str:
    if loss.p_percent is None:
        return f"loss {loss.percent:g}%"
    p, r, h, k = loss.states
    return f"loss gemodel {p:g}% {r:g}% {100 - h:g}% {100 - k:g}%"


def _rate(device: str, rate: Rate, queue: Queue, frame_bytes: int) -> list[str]:
    assert rate.mbit is not None
    bytes_per_s = rate.mbit * 125_000
    burst = max(MIN_BURST_FRAMES * frame_bytes, round(bytes_per_s * BURST_S))
    # The queue contains the packet that is sent next, so that it has room for one.
    size = max(frame_bytes, round(queue.bytes or bytes_per_s * (queue.ms or 0) / 1000))
    shape = f"tbf rate {rate.mbit * 1000:.0f}kbit burst {burst} limit {size}"
    lines = [f"qdisc add dev {device} parent 1:1 handle 2: {shape}"]
    if queue.discipline == "codel":
        packets = queue.packets or max(1, round(size / frame_bytes))
        lines.append(f"qdisc add dev {device} parent 2:1 codel limit {packets}")
    elif queue.packets:
        lines.append(f"qdisc add dev {device} parent 2:1 pfifo limit {queue.packets}")
    return lines


@dataclass(frozen=True)
class Counters:
    """What the queues of a device counted since they were created."""

    sent: int
    lost: int
    queue_drops: int
    waiting: int
    """Packets that are delayed or wait for the rate now."""

    def summary(self, before: Counters) -> dict[str, Any]:
        """Return what happened since `before`, as far as netem counts it; a duplicate is a packet of its own."""
        sent, lost, dropped, waiting = (
            getattr(self, name) - getattr(before, name) for name in Counters.__dataclass_fields__
        )
        packets = sent + lost + dropped + waiting
        return {
            "packets": packets,
            "lost": lost,
            "decided": packets,
            "queue_drops": dropped,
            "outage_drops": 0,
        }


def counters(shown: str) -> Counters | None:
    """Return the counters in the output of `tc -s -j qdisc show dev DEVICE`; None if nothing impairs the device."""
    found = {qdisc["handle"]: qdisc for qdisc in json.loads(shown) if "handle" in qdisc}
    netem = found.get("1:")
    if netem is None or netem["kind"] != "netem":
        return None
    # netem counts what its child drops as dropped, too.
    dropped = found["2:"]["drops"] if "2:" in found else 0
    return Counters(netem["packets"], netem["drops"] - dropped, dropped, netem["qlen"])
