"""Write the queues of the kernel that impair a direction of a link, for `tc -batch`: netem, with a rate behind it."""

from __future__ import annotations

from k8sdds.model.impairments import Delay, Direction, Loss, Queue, Rate
from k8sdds.testbeds.link_emulation import netem_delay

LIMIT = 1_000_000
"""Packets that netem holds while they are delayed; the queue of the rate is a queue of its own."""
BURST = "16kb"
"""Token bucket of a rate: about ten full frames."""
USUAL_LATENCY = "50ms"
"""Length of the queue of a rate if the link names none."""
PACKET_BYTES = 1500


def queues(device: str, direction: Direction) -> tuple[str, ...]:
    """Return the commands that impair what a device sends.

    A packet is lost or duplicated, then delayed, then it waits for the rate: netem passes packets on to its child when
    their delay is over (tc-netem(8)).
    """
    words = [
        _delay(direction.delay) if direction.delay else "",
        _loss(direction.loss) if direction.loss else "",
        f"duplicate {direction.duplicate_percent:g}%" if direction.duplicate_percent else "",
    ]
    if not any(words) and not direction.rate:
        return ()
    netem = " ".join(word for word in words if word)
    lines = [f"qdisc replace dev {device} root handle 1: netem limit {LIMIT} {netem}".rstrip()]
    if direction.rate:
        lines += _rate(device, direction.rate, direction.queue)
    return tuple(lines)


def _delay(delay: Delay) -> str:
    mean_us, jitter_us = netem_delay(delay)
    words = [f"delay {mean_us:.0f}us"]
    if jitter_us:
        words.append(f"{jitter_us:.0f}us {delay.correlation_percent:g}%")
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


def _rate(device: str, rate: Rate, queue: Queue | None) -> list[str]:
    assert rate.mbit is not None
    size = f"latency {USUAL_LATENCY}"
    if queue and queue.ms:
        size = f"latency {queue.ms:g}ms"
    elif queue:
        size = f"limit {queue.bytes or (queue.packets or 1) * PACKET_BYTES}"
    lines = [
        f"qdisc add dev {device} parent 1:1 handle 2: tbf rate {rate.mbit * 1000:.0f}kbit burst {BURST} {size}"
    ]
    if queue and queue.discipline == "codel":
        bytes_ = queue.bytes or rate.mbit * 125 * (queue.ms or 0)
        packets = queue.packets or max(1, round(bytes_ / PACKET_BYTES))
        lines.append(f"qdisc add dev {device} parent 2:1 codel limit {packets}")
    elif queue and queue.packets:
        lines.append(f"qdisc add dev {device} parent 2:1 pfifo limit {queue.packets}")
    return lines
