"""Group the trials of a campaign on a cluster into blocks. Pure functions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from k8sdds import workloads
from k8sdds.model.axis import MACHINE
from k8sdds.model.link import Link
from k8sdds.model.services import Via
from k8sdds.model.settings import HOST
from k8sdds.model.trial import AXES, IP_FAMILIES, Cell, NetworkMode, Trial
from k8sdds.testbeds import Block, repetitions

NodeNeeds = tuple[tuple[object, ...], Link]
"""Settings of the machines, and those of the links."""

Group = TypeVar("Group", bound=Hashable)


def pod_network(cell: Cell) -> NetworkMode | None:
    """Return the pod network that a cell needs; None if it uses the nodes' own network, another interface, or none.

    IP families are not an option of it: pods have addresses of all families of the cluster.
    """
    if cell.network == HOST or "attachment" in cell.network_options:
        return None
    return cell.network, prepared_options(cell)


def prepared_options(cell: Cell) -> tuple[tuple[str, object], ...]:
    """Return the options of a cell's network, and the settings of its nodes and pods, without the IP families."""
    return tuple(
        sorted((name, value) for name, value in cell.datapath_options.items() if name != IP_FAMILIES)
    )


def on_host(cell: Cell) -> bool:
    """Return whether the pods of a cell use the nodes' own network. A pod that all participants share needs none."""
    return cell.network == HOST and not cell.in_one_pod


def _services(trial: Trial) -> tuple[int, Via] | None:
    """Return the number of Services and the kind of the measured one that a trial needs; None if it needs none."""
    wanted = workloads.find(trial.cell.test).services(trial.cell)
    return (wanted.count, wanted.via) if wanted else None


def _node_settings(trial: Trial) -> NodeNeeds:
    """Return the requirements of a trial on the nodes apart from its network."""
    settings = (getattr(trial.cell, name) for name, axis in AXES.items() if axis.scope == MACHINE)
    return tuple(settings), trial.cell.link


def _prepared(trial: Trial) -> tuple[NetworkMode | None, NodeNeeds]:
    return pod_network(trial.cell), _node_settings(trial)


def _shuffled(
    trials: Sequence[Trial], key: Callable[[Trial], Group], order: random.Random
) -> dict[Group, list[Trial]]:
    """Return the trials by a key, the keys in random order."""
    groups: dict[Group, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(key(trial), []).append(trial)
    keys = list(groups)
    order.shuffle(keys)
    return {one: groups[one] for one in keys}


def make_blocks(trials: Sequence[Trial], seed: int, one_network: bool) -> list[Block]:
    """Group trials into blocks in random order. A block has one tuning and one kind of links, and one set of Services.

    Pod networks replace each other on a cluster. With several of them, every repetition has one block per network; with
    one, every repetition is one block, unless `one_network` requires that metrics read around a block belong to one.

    Of its pod networks, a repetition begins with the one that is still installed from the last repetition, which saves
    a switch. Every network still has every position with the same probability.
    """
    several_networks = len({pod_network(trial.cell) for trial in trials} - {None}) > 1
    # Services belong to one pod, so that trials on the nodes' own network need others.
    one_set = len(set(map(_node_settings, trials))) < 2 and not any(map(_services, trials))
    if not one_network and not several_networks and one_set:
        return repetitions(trials, seed)
    order = random.Random(seed)
    blocks: list[Block] = []
    installed: tuple[NetworkMode | None, NodeNeeds] | None = None
    for repetition in sorted({trial.repetition for trial in trials}):
        groups = _shuffled([trial for trial in trials if trial.repetition == repetition], _prepared, order)
        keys = list(groups)
        if installed in groups:
            first = next(index for index, (network, _) in enumerate(keys) if network is not None)
            other = keys.index(installed)
            keys[first], keys[other] = keys[other], keys[first]
        for key in keys:
            for members in _shuffled(groups[key], _services, order).values():
                order.shuffle(members)
                blocks.append(Block(len(blocks), tuple(members)))
            installed = key if key[0] else installed
    return blocks


def count_switches(blocks: Sequence[Block], is_installed: Callable[[NetworkMode], bool]) -> int:
    """Return how often a campaign replaces the pod network, including the restoration of the original one at the end.

    `is_installed` returns whether a network is the original one.
    """
    needed = [
        next(filter(None, (pod_network(trial.cell) for trial in block.trials)), None) for block in blocks
    ]
    networks = [network for network in needed if network is not None]
    if not networks:
        return 0
    between = sum(before != after for before, after in itertools.pairwise(networks))
    return between + sum(not is_installed(network) for network in (networks[0], networks[-1]))
