"""Find the user's own configuration file of a middleware."""

from __future__ import annotations

import hashlib
from pathlib import Path

from k8sdds.model.trial import Cell
from k8sdds.system import reading, xml_text
from k8sdds.system.errors import InputError

MAX_BYTES = 64 * 1024
"""Largest configuration file. k8sdds-perftest has the same limit."""


def checksum(path: str) -> str:
    """Return the SHA-256 of a configuration file.

    Raises:
        InputError: The file cannot be read or is too long.
    """
    try:
        content = reading.data(path, MAX_BYTES)
    except (OSError, ValueError, reading.UnreadableError) as error:
        why = getattr(error, "message", None) or f"{path}: {getattr(error, 'strerror', None) or error}"
        raise InputError(
            f"middleware_config: {why}", "name an XML file, relative to the experiment"
        ) from error
    xml_text.parse(content, f"middleware_config: {path}", "see: k8sdds docs middleware-config")
    return hashlib.sha256(content).hexdigest()


def copy_name(cell: Cell) -> str:
    """Return the name of the run folder's copy; files of one name with different content have different copies."""
    return f"{Path(cell.middleware_config).stem}-{cell.middleware_config_sha256[:8]}.xml"
