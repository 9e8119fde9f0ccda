"""Files of a kind that ship with k8sdds, by their name, and the user's own, by their path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared
from k8sdds.system.yaml_text import nearest


@dataclass(frozen=True)
class Shipped:
    """A folder of YAML files and what messages call one of them."""

    folder: str
    """Below the folders that ship with k8sdds, such as `experiments`."""
    kind: str
    """With its article, such as `an experiment`."""
    none: str
    """How the absence of one begins, such as `there is no experiment`."""
    see: str = ""
    """Where the names can be seen."""

    @property
    def _path(self) -> Path:
        top, *below = self.folder.split("/")
        return shared(top).joinpath(*below)

    def names(self) -> list[str]:
        """Names of the installed ones."""
        return sorted(path.stem for path in self._path.glob("*.yaml"))

    def read(self, name: str) -> tuple[Path, str]:
        """Path and text of an installed one by its name, or of a YAML file by its path. Raises InputError."""
        if name.endswith((".yaml", ".yml")) or "/" in name:
            path = Path(name)
        else:
            path = self._path / f"{name}.yaml"
            if not path.is_file():
                see = f"{self.see}; or name a YAML file" if self.see else f"name {self.kind} or a YAML file"
                raise InputError(f"{self.none} {name!r}{nearest(name, self.names())}", see)
        try:
            return path, path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot read {path}: {error.strerror}", f"name {self.kind} or a YAML file"
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text", "name a YAML file") from error
