"""Read files that are installed with k8sdds, by name, or the user's own, by path or name."""

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

    folders: tuple[str, ...]
    """The folders with them, such as `experiments`."""
    kind: str
    """What messages call such a file, such as `experiment`."""
    list_command: str = ""
    """The command that lists the names."""
    suffixes: tuple[str, ...] = (".yaml", ".yml")
    """Suffixes of such files; new ones have the first one by default."""

    def _installed(self) -> dict[str, Path]:
        return {
            path.stem: path
            for folder in self.folders
            for path in sorted(shared(folder).iterdir())
            if path.suffix in self.suffixes
        }

    def names(self) -> list[str]:
        """Return the names of the installed files."""
        return list(self._installed())

    def read(self, name: str) -> tuple[Path, str]:
        """Return the path and text of an installed file (by name), or of the user's own file.

        The user's file is named by its path, or by its name without suffix if it is in the current folder.
        """
        installed = self._installed()
        path = Path(name) if self.is_path(name) else installed.get(name, Path(f"{name}{self.suffixes[0]}"))
        if not self.is_path(name) and not path.is_file():
            listed = f"list the names: {self.list_command}; or " if self.list_command else ""
            own = f"for your file, write ./{name}"
            if not Path(name).is_file():
                own = f"give the path of your file, which contains a / or ends in {self.suffixes[0]}"
            raise InputError(
                f"there is no {self.kind} {name!r}{nearest(name, list(installed))}", f"{listed}{own}"
            )
        try:
            return path, reading.text(path, yaml_text.MAX_BYTES, f"give a {self.suffixes[0]} file")
        except (OSError, ValueError) as error:
            others = [str(other) for other in map(path.with_suffix, self.suffixes) if other.is_file()]
            meant = f" (did you mean {others[0]!r}?)" if others and not path.exists() else ""
            raise InputError(
                f"cannot read {reading.printable(name)}: {getattr(error, 'strerror', None) or error}{meant}",
                f"give the name of an installed {self.kind}, or the path of your file",
            ) from error

    def is_path(self, name: str) -> bool:
        """Return whether a name is the path of a file instead of the name of an installed file."""
        return name.endswith(self.suffixes) or "/" in name

    def copy(self, like: str, name: str) -> str:
        """Return the text of a file, which `read` finds, with another value of its key `name`."""
        _, text = self.read(like)
        line = f"name: {yaml_template.flow(name)}"
        return re.sub(r"^name:.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
