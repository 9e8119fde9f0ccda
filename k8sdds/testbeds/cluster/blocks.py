"""Group the trials of a campaign on a cluster into blocks. Pure functions."""

from __future__ import annotations

import random
from collections.abc import Sequence

from k8sdds.model.trial import IP_FAMILIES, Cell, NetworkMode, Trial
from k8sdds.networks import find
from k8sdds.testbeds import Block, repetitions

HOST = "host"
"""The network of pods that use the nodes' own network."""


def pod_network(cell: Cell) -> NetworkMode | None:
    """Return the pod network that a cell needs; None: it uses the nodes' own network, another interface, or none.

    IP families are not an option of it: pods have addresses of all families of the cluster.
    """
    if cell.network == HOST or find(cell.network).by_attachment:
        return None
    return cell.network, prepared_options(cell)


def prepared_options(cell: Cell) -> tuple[tuple[str, object], ...]:
    """Return the options of a cell's network, and the settings of its nodes and pods, without the IP families."""
    return tuple(
        sorted((name, value) for name, value in cell.datapath_options.items() if name != IP_FAMILIES)
    )


def on_host(cell: Cell) -> bool:
    """Return whether the pods of a cell use the nodes' own network. Samples in shared memory use no network."""
    return cell.network == HOST and cell.uses_network


def make_blocks(trials: Sequence[Trial], seed: int, one_network: bool) -> list[Block]:
    """Group trials into blocks in random order. The nodes of a block have one tuning.

    Pod networks replace each other on a cluster. With several of them, every repetition has one block per network; with
    one, every repetition is one block. Of its pod networks, a repetition begins with the one that is still installed
    from the last repetition, which saves a switch. Every network still has every position with the same probability.

    Args:
        trials: The trials of the campaign.
        seed: Seed of the random order.
        one_network: Always use blocks of one network, so that metrics read around a block belong to it.
    """
    several_networks = len({pod_network(trial.cell) for trial in trials} - {None}) > 1
    if not one_network and not several_networks and len({trial.cell.tuning for trial in trials}) < 2:
        return repetitions(trials, seed)
    order = random.Random(seed)
    blocks: list[Block] = []
    installed: tuple[NetworkMode | None, str] | None = None
    for repetition in sorted({trial.repetition for trial in trials}):
        groups: dict[tuple[NetworkMode | None, str], list[Trial]] = {}
        for trial in trials:
            if trial.repetition == repetition:
                groups.setdefault((pod_network(trial.cell), trial.cell.tuning), []).append(trial)
        shuffled = list(groups)
        order.shuffle(shuffled)
        if installed is not None and installed in groups:
            first = next(index for index, (network, _) in enumerate(shuffled) if network is not None)
            other = shuffled.index(installed)
            shuffled[first], shuffled[other] = shuffled[other], shuffled[first]
        for group in shuffled:
            order.shuffle(groups[group])
            blocks.append(Block(len(blocks), tuple(groups[group])))
            installed = group if group[0] else installed
    return blocks
