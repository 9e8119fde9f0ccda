"""Apply what an experiment changes on the nodes of a deployed cluster: tuning, links, steering of packets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k8sdds.model.link import STANDARD_MTU
from k8sdds.model.settings import NO_TUNING
from k8sdds.model.trial import Cell
from k8sdds.system.errors import InputError, K8sddsError, PrerequisiteError, Problem
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.nodes import NodeInfo, one_kernel

if TYPE_CHECKING:
    # Imported when they are needed, because other clusters need nothing of `deploy`.
    from k8sdds.deploy.tuning import Interface

MASK_FILE = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
SHARED_KERNEL = (
    "the nodes share one kernel, so the sender's core also does the receive work of the other nodes"
)


@dataclass(frozen=True)
class NodeSettings:
    """What a cell changes on the nodes."""

    tuning: str = NO_TUNING
    mtu: int | None = None
    """MTU of the interface between the nodes; None means unchanged."""
    offloads: tuple[tuple[str, bool], ...] = ()
    """Offloads of this interface; those that are missing are unchanged."""

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return self != NodeSettings()

    @property
    def sets(self) -> list[str]:
        """The tuning sets: one or none."""
        return [self.tuning] if self.tuning != NO_TUNING else []

    def interface(self) -> Interface:
        """Return the settings of the interface between the nodes."""
        from k8sdds.deploy.tuning import Interface

        return Interface.model_validate({"mtu": self.mtu, "offloads": dict(self.offloads)})

    def describe(self) -> str:
        """Describe the settings briefly: `tuning tcp-buffers, link MTU 9000, gro off`."""
        parts = [f"tuning {name}" for name in self.sets]
        parts += [f"link MTU {self.mtu}"] if self.mtu else []
        return ", ".join([*parts, *(f"{name} {'on' if on else 'off'}" for name, on in self.offloads)])


class NodeTuning:
    """The settings that an experiment has changed on the nodes of a cluster, whose name is empty if others deployed it.

    If none of the `cells` of the campaign has another MTU of links than the standard, MTUs stay as they are: the
    cluster's own one may be larger.
    """

    def __init__(self, cluster: str, cells: Iterable[Cell]) -> None:
        self._cluster = cluster
        cells = list(cells)
        self._sets_mtu = any(cell.link.mtu != STANDARD_MTU for cell in cells)
        self._requested = list(dict.fromkeys(filter(None, map(self.of, cells))))
        self._current = NodeSettings()
        self._before: dict[str, tuple[str, ...]] = {}
        self.seen: dict[str, dict[str, str]] = {}
        """Node → setting → value, as read after they were applied; empty if nothing is applied."""

    def of(self, cell: Cell) -> NodeSettings:
        """Return the settings that a cell needs."""
        mtu = cell.link.mtu if self._sets_mtu else None
        return NodeSettings(cell.tuning, mtu, tuple(cell.link.offloads.requested().items()))

    @property
    def changes_nodes(self) -> bool:
        """Whether the campaign changes settings of the nodes."""
        return bool(self._requested)

    def problems(self) -> list[Problem]:
        """Return the settings that the nodes cannot have. Makes no changes."""
        if not self._requested:
            return []
        if not self._cluster:
            described = "; ".join(settings.describe() for settings in self._requested)
            return [
                Problem(
                    f"{described}: k8sdds has no access to the nodes of a cluster that it did not deploy",
                    "leave this out, or measure on a cluster that `k8sdds deploy` built",
                )
            ]
        from k8sdds.deploy import experiment_tuning

        return [
            Problem(
                f"{settings.describe()}: {machine}: {'; '.join(found)}", "leave this out, or use other nodes"
            )
            for settings in self._requested
            for machine, found in experiment_tuning.unsupported(
                self._cluster, settings.sets, settings.interface()
            ).items()
        ]

    def provide(self, settings: NodeSettings) -> bool:
        """Apply settings, after those of another block were restored. Return whether there was anything to change."""
        # After a failed attempt to apply the settings, nothing was read.
        if settings == self._current and bool(self.seen) == bool(settings):
            return False
        from k8sdds.deploy import experiment_tuning

        if self._current:
            experiment_tuning.restore(self._cluster, self._current.sets, self._before)
            self._current, self._before, self.seen = NodeSettings(), {}, {}
        if settings:
            self._current = settings
            self._before, after = experiment_tuning.apply(self._cluster, settings.sets, settings.interface())
            self.seen = {node: dict(map(_setting, lines)) for node, lines in after.items()}
        return True


def _setting(line: str) -> tuple[str, str]:
    """Return name and value of a line: `sysctl KEY STATE VALUE`, `mtu DEVICE - VALUE MAX`, `ring DEVICE NAME …`."""
    kind, where, name, *value = line.split(" ")
    described = {"sysctl": where, "mtu": f"{where} mtu"}.get(kind, f"{where} {kind} {name}")
    return described, (value[0] if kind == "mtu" else " ".join(value).strip())


def require_path_mtu(cell: Cell, requested: int | None, passed: int | None) -> None:
    """Check that packets of the `requested` size in bytes pass between the nodes, if a cell sets the MTU of links.

    `passed`: size of the largest packet that passed; None if not observed. Raises PrerequisiteError.
    """
    if cell.link.mtu != STANDARD_MTU and passed and requested and passed < requested:
        raise PrerequisiteError(
            f"{cell.network_label}: packets of {requested} bytes do not pass between the nodes, only of {passed}",
            f"let the network between the nodes carry packets of {cell.link.mtu} bytes, or leave out link.mtu",
        )


class Steering:
    """The steering of received packets on local nodes to the cores of their participants (RPS), as in the lab.

    Local nodes share one kernel. Without steering, the sender's core also does the receive work of the other node,
    which no sender on another machine does. Nodes on separate machines do not need it.
    """

    def __init__(self, cluster: str, nodes: Sequence[NodeInfo]) -> None:
        self._cluster = cluster
        self._share_kernel = one_kernel(nodes)
        self._masks: dict[str, str] = {}

    def apply(self, cell: Cell, layout: core_layout.Layout, node_of: Mapping[str, str]) -> str:
        """Steer the packets that each node receives to the cores of its participants, if the cell's layout does so.

        Returns why packets cannot be steered; empty if they are, or need not be.
        """
        if not self._share_kernel:
            return ""
        masks = core_layout.steering(cell.layout, layout, node_of)
        failed = self._write(masks)
        if not failed or not any(map(core_layout.steers, masks.values())):
            return ""
        reasons = dict.fromkeys(error.message for error in failed.values())
        return f"packets: {SHARED_KERNEL}: {'; '.join(reasons)}"

    def close(self) -> None:
        """Switch the steering off again."""
        failed = self._write(dict.fromkeys(self._masks, core_layout.NOT_STEERED))
        for node, error in failed.items():
            # A node that was stopped or removed does not steer.
            if not isinstance(error, InputError):
                raise PrerequisiteError(
                    f"cannot switch off the steering of received packets: {error.message}",
                    f"run: k8sdds nodes exec {self._cluster}/{node} -- sh -c 'echo 0 > {MASK_FILE}'",
                ) from error

    def _write(self, masks: Mapping[str, str]) -> dict[str, K8sddsError]:
        """Write the masks that differ from the current ones. Return the errors of the nodes where this failed."""
        if not self._cluster:
            return dict.fromkeys(masks, InputError("k8sdds did not create these nodes"))
        from k8sdds import nodes

        failed: dict[str, K8sddsError] = {}
        for node, mask in masks.items():
            if self._masks.get(node) == mask:
                continue
            try:
                nodes.run(self._cluster, node, ["sh", "-c", f"echo {mask} > {MASK_FILE}"])
                self._masks[node] = mask
            except K8sddsError as error:
                failed[node] = error
        return failed
