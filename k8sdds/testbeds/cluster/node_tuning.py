"""Apply a tuning set and settings of links to the nodes of a deployed cluster, for the blocks that request it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k8sdds.model.link import STANDARD_MTU
from k8sdds.model.settings import NO_TUNING
from k8sdds.model.trial import Cell
from k8sdds.system.errors import PrerequisiteError, Problem

if TYPE_CHECKING:
    from k8sdds.deploy.tuning import Interface


@dataclass(frozen=True)
class NodeSettings:
    """What an experiment changes on the nodes."""

    tuning: str = NO_TUNING
    mtu: int | None = None
    """MTU of the interface between the nodes; None: unchanged."""
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
        # Imported here because other clusters need nothing of `deploy`.
        from k8sdds.deploy.tuning import Interface

        return Interface.model_validate({"mtu": self.mtu, "offloads": dict(self.offloads)})

    def describe(self) -> str:
        """Describe the settings briefly: `tuning tcp-buffers, link MTU 9000, gro off`."""
        parts = [f"tuning {name}" for name in self.sets]
        parts += [f"link MTU {self.mtu}"] if self.mtu else []
        return ", ".join([*parts, *(f"{name} {'on' if on else 'off'}" for name, on in self.offloads)])


class NodeTuning:
    """The settings that an experiment has changed on the nodes of a cluster."""

    def __init__(self, cluster: str, cells: Iterable[Cell]) -> None:
        """Contact nothing yet.

        Args:
            cluster: Name of the cluster; empty: k8sdds did not deploy it.
            cells: All cells of the campaign. If none has another MTU of links than the standard, MTUs stay as they are:
                the cluster's own one may be larger.
        """
        self._cluster = cluster
        cells = list(cells)
        self._sets_mtu = any(cell.link.mtu != STANDARD_MTU for cell in cells)
        self._requested = list(dict.fromkeys(filter(None, map(self.of, cells))))
        self._current = NodeSettings()
        self._before: dict[str, tuple[str, ...]] = {}
        self.seen: dict[str, dict[str, str]] = {}
        """Node → setting → value, as read after they were applied; empty: nothing is applied."""

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
        if self._requested and not self._cluster:
            described = "; ".join(settings.describe() for settings in self._requested)
            return [
                Problem(
                    f"{described}: k8sdds has no access to the nodes of a cluster that it did not deploy",
                    "leave this out, or measure on a cluster that `k8sdds deploy` built",
                )
            ]
        return [problem for settings in self._requested for problem in self._unsupported(settings)]

    def _unsupported(self, settings: NodeSettings) -> list[Problem]:
        from k8sdds.deploy import experiment_tuning

        notes = experiment_tuning.unsupported(self._cluster, settings.sets, settings.interface())
        return [
            Problem(
                f"{settings.describe()}: {machine}: {'; '.join(found)}", "leave this out, or use other nodes"
            )
            for machine, found in notes.items()
        ]

    def provide(self, settings: NodeSettings) -> bool:
        """Apply settings, after those of another block were restored. Return whether there was anything to change.

        Raises:
            PrerequisiteError: A node did not accept a setting, or has another one than before.
        """
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


def require_path_mtu(cell: Cell, requested: int | None, passed: int | None) -> None:
    """Check that packets as large as an experiment requests pass between the nodes.

    Args:
        cell: What is measured.
        requested: MTU of the pods in bytes; None: unknown.
        passed: Size in bytes of the largest packet that passed between them; None: not observed.

    Raises:
        PrerequisiteError: They do not pass.
    """
    if cell.link.mtu != STANDARD_MTU and passed and requested and passed < requested:
        raise PrerequisiteError(
            f"{cell.network_label}: packets of {requested} bytes do not pass between the nodes, only of {passed}",
            f"let the network between the nodes carry packets of {cell.link.mtu} bytes, or leave out link.mtu",
        )


def _setting(line: str) -> tuple[str, str]:
    """Return name and value of a line: `sysctl KEY STATE VALUE`, `mtu DEVICE - VALUE MAX`, `ring DEVICE NAME …`."""
    kind, where, name, *value = line.split(" ")
    described = {"sysctl": where, "mtu": f"{where} mtu"}.get(kind, f"{where} {kind} {name}")
    return described, (value[0] if kind == "mtu" else " ".join(value).strip())
