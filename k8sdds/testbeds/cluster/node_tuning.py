"""Tune the nodes of a cluster that k8sdds deployed, for the blocks that request it."""

from __future__ import annotations

from collections.abc import Iterable

from k8sdds.model.experiment import NO_TUNING
from k8sdds.model.trial import Cell
from k8sdds.system.errors import Problem


class NodeTuning:
    """The tuning set that the nodes of a cluster have now."""

    def __init__(self, cluster: str) -> None:
        """Contact nothing yet. `cluster`: name of the cluster; empty: k8sdds did not deploy it."""
        self._cluster = cluster
        self._current = NO_TUNING
        self._before: dict[str, tuple[str, ...]] = {}
        self.seen: dict[str, dict[str, str]] = {}
        """Node → setting → value, as read after the set was applied; empty: no set is applied."""

    def problems(self, cells: Iterable[Cell]) -> list[Problem]:
        """Return the tuning sets that the nodes cannot have. Makes no changes."""
        names = dict.fromkeys(cell.tuning for cell in cells if cell.tuning != NO_TUNING)
        if names and not self._cluster:
            return [
                Problem(
                    f"tuning {', '.join(names)}: k8sdds has no access to the nodes of a cluster that it did not deploy",
                    "leave out tuning, or measure on a cluster that `k8sdds deploy` built",
                )
            ]
        return [problem for name in names for problem in self._unsupported(name)]

    def _unsupported(self, name: str) -> list[Problem]:
        # Imported here because other clusters need nothing of `deploy`.
        from k8sdds.deploy import experiment_tuning

        return [
            Problem(f"tuning {name}: {machine}: {'; '.join(notes)}", "use another set, or other nodes")
            for machine, notes in experiment_tuning.unsupported(self._cluster, name).items()
        ]

    def provide(self, name: str) -> bool:
        """Apply a set, after the settings of another one were restored. Return whether there was anything to change.

        Raises:
            PrerequisiteError: A node did not accept a setting, or has another one than before.
        """
        # After a failed attempt to apply the set, nothing was read.
        if name == self._current and bool(self.seen) == (name != NO_TUNING):
            return False
        from k8sdds.deploy import experiment_tuning

        if self._current != NO_TUNING:
            experiment_tuning.restore(self._cluster, self._current, self._before)
            self._current, self._before, self.seen = NO_TUNING, {}, {}
        if name != NO_TUNING:
            self._current = name
            self._before, after = experiment_tuning.apply(self._cluster, name)
            self.seen = {node: dict(map(_setting, lines)) for node, lines in after.items()}
        return True


def _setting(line: str) -> tuple[str, str]:
    """Return name and value of a setting: `sysctl KEY STATE VALUE`, `offload DEVICE NAME VALUE`, `ring …`."""
    kind, where, name, *value = line.split(" ")
    return (where if kind == "sysctl" else f"{where} {kind} {name}"), " ".join(value).strip()
