"""Group the trials of a campaign on a cluster into blocks. Pure functions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

from k8sdds import workloads
from k8sdds.model.services import Via
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


def services(cell: Cell) -> tuple[int, Via] | None:
    """Return the number of Services and the kind of the measured one that a cell needs; None: it needs none."""
    wanted = workloads.find(cell.test).services(cell)
    return (wanted.count, wanted.via) if wanted else None


def _on_nodes(cell: Cell) -> str:
    """Return what a cell needs on the nodes, apart from its network."""
    return f"{cell.tuning} {cell.link.describe()}"


def make_blocks(trials: Sequence[Trial], seed: int, one_network: bool) -> list[Block]:
    """Group trials into blocks in random order. A block has one tuning and one kind of links, and one set of Services.

    Pod networks replace each other on a cluster. With several of them, every repetition has one block per network; with
    one, every repetition is one block. Of its pod networks, a repetition begins with the one that is still installed
    from the last repetition, which saves a switch. Every network still has every position with the same probability.

    Args:
        trials: The trials of the campaign.
        seed: Seed of the random order.
        one_network: Always use blocks of one network, so that metrics read around a block belong to it.
    """
    several_networks = len({pod_network(trial.cell) for trial in trials} - {None}) > 1
    # Services belong to one pod, so that trials on the nodes' own network need others.
    one_set = len({_on_nodes(trial.cell) for trial in trials}) < 2 and not any(
        services(trial.cell) for trial in trials
    )
    if not one_network and not several_networks and one_set:
        return repetitions(trials, seed)
    order = random.Random(seed)
    blocks: list[Block] = []
    installed: tuple[NetworkMode | None, str] | None = None
    for repetition in sorted({trial.repetition for trial in trials}):
        groups: dict[tuple[NetworkMode | None, str], list[Trial]] = {}
        for trial in trials:
            if trial.repetition == repetition:
                groups.setdefault((pod_network(trial.cell), _on_nodes(trial.cell)), []).append(trial)
        shuffled = list(groups)
        order.shuffle(shuffled)
        if installed is not None and installed in groups:
            first = next(index for index, (network, _) in enumerate(shuffled) if network is not None)
            other = shuffled.index(installed)
            shuffled[first], shuffled[other] = shuffled[other], shuffled[first]
        for group in shuffled:
            for part in _by_services(groups[group], order):
                blocks.append(Block(len(blocks), part))
            installed = group if group[0] else installed
    return blocks


def count_switches(blocks: Sequence[Block], is_installed: Callable[[NetworkMode], bool]) -> int:
    """Return how often a campaign replaces the pod network, including to restore the original one at the end.

    Args:
        blocks: The blocks in their order.
        is_installed: Returns whether a network is the original one.
    """
    cells = [[trial.cell for trial in block.trials] for block in blocks]
    needed = [next(filter(None, map(pod_network, members)), None) for members in cells]
    networks = [network for network in needed if network is not None]
    if not networks:
        return 0
    between = sum(before != after for before, after in itertools.pairwise(networks))
    return between + sum(not is_installed(network) for network in (networks[0], networks[-1]))


def _by_services(trials: Sequence[Trial], order: random.Random) -> Iterator[tuple[Trial, ...]]:
    """Yield the trials with each set of Services, in random order."""
    sets: dict[tuple[int, Via] | None, list[Trial]] = {}
    for trial in trials:
        sets.setdefault(services(trial.cell), []).append(trial)
    shuffled = list(sets)
    order.shuffle(shuffled)
    for wanted in shuffled:
        order.shuffle(sets[wanted])
        yield tuple(sets[wanted])
