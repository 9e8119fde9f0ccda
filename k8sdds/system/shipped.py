"""Read YAML files that are installed with k8sdds, by name, or the user's own, by path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system import reading, yaml_template, yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared
from k8sdds.system.yaml_text import nearest


@dataclass(frozen=True)
class ShippedFiles:
    """The installed files of one kind."""

    folder: str
    """Below the folders that are installed with k8sdds, such as `experiments`."""
    kind: str
    """What messages call such a file, such as `experiment`."""
    list_command: str = ""
    """The command that lists the names."""

    @property
    def _path(self) -> Path:
        top, *below = self.folder.split("/")
        return shared(top).joinpath(*below)

    def names(self) -> list[str]:
        """Return the names of the installed files."""
        return sorted(path.stem for path in self._path.glob("*.yaml"))

    def read(self, name: str) -> tuple[Path, str]:
        """Return the path and text of an installed file (by name) or of any YAML file (by path).

        Raises:
            InputError: There is no such file, or it cannot be read.
        """
        if self.is_path(name):
            path = Path(name)
        else:
            path = self._path / f"{name}.yaml"
            if name not in self.names():
                listed = f"list the names: {self.list_command}; or " if self.list_command else ""
                raise InputError(
                    f"there is no {self.kind} {name!r}{nearest(name, self.names())}",
                    f"{listed}give the path of a YAML file",
                )
        try:
            return path, reading.text(path, yaml_text.MAX_BYTES, "give a YAML file")
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read {reading.printable(name)}: {getattr(error, 'strerror', None) or error}",
                f"give the name of an installed {self.kind}, or the path of a YAML file",
            ) from error

    @staticmethod
    def is_path(name: str) -> bool:
        """Return whether a name is the path of a YAML file instead of the name of an installed file."""
        return name.endswith((".yaml", ".yml")) or "/" in name

    def copy(self, like: str, name: str) -> str:
        """Return the text of a file, which `read` finds, with another value of its key `name`.

        Raises:
            InputError: There is no such file, or it cannot be read.
        """
        _, text = self.read(like)
        line = f"name: {yaml_template.flow(name)}"
        return re.sub(r"^name:.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
