"""Which trials of a campaign on a cluster are measured together, and in which order. Pure."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

from k8sdds.model.trial import Cell, Trial
from k8sdds.testbeds import Block, repetitions

HOST = "host"
PodNetwork = tuple[str, tuple[tuple[str, object], ...]]


def pod_network(cell: Cell) -> PodNetwork | None:
    """What tells a cell's pod network from others; None on the nodes' own network."""
    return None if cell.network == HOST else (cell.network, tuple(sorted(cell.network_options.items())))


def of(trials: Sequence[Trial], seed: int, apart: bool) -> list[Block]:
    """In each repetition one block per network, in random order, for pod networks replace each other; what
    needs no other network than the installed one is one block.

    `apart`: blocks of one network in any case, so that what is read around a block is of that network alone.
    """
    if not apart and len({pod_network(trial.cell) for trial in trials} - {None}) < 2:
        return repetitions(trials, seed)
    order = random.Random(seed)
    blocks: list[Block] = []
    for repetition in sorted({trial.repetition for trial in trials}):
        groups: dict[Hashable, list[Trial]] = {}
        for trial in trials:
            if trial.repetition == repetition:
                groups.setdefault(pod_network(trial.cell), []).append(trial)
        shuffled = list(groups.values())
        order.shuffle(shuffled)
        for group in shuffled:
            order.shuffle(group)
            blocks.append(Block(len(blocks), tuple(group)))
    return blocks
