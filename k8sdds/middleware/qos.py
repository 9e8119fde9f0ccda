"""Find the QoS profile of a cell."""

from __future__ import annotations

from pathlib import Path

from k8sdds.model.trial import Cell
from k8sdds.system.errors import InputError
from k8sdds.system.paths import shared


def qos_file(cell: Cell) -> Path:
    """Return the file of the cell's QoS profile: a profile of qos/ by name, or the given path.

    Raises:
        InputError: There is no such file.
    """
    name = cell.qos_profile
    is_file = "/" in name or name.endswith(".xml")
    path = Path(name) if is_file else shared("qos") / f"{name}.xml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in shared("qos").glob("*.xml")))
        raise InputError(f"there is no QoS profile {name!r}", f"known: {known}; or name an XML file")
    return path.resolve()
