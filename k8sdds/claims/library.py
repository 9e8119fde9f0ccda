"""Files of claims by name or path."""

from __future__ import annotations

from pathlib import Path

from k8sdds.claims.model import Claim, Claims
from k8sdds.errors import InputError
from k8sdds.folders import shared
from k8sdds.model import yamltext

PAPER = "k8sdds-paper"
"""The claims of the study that k8sdds follows."""


def names() -> list[str]:
    """Names of the installed files of claims."""
    return sorted(path.stem for path in (shared("experiments") / "claims").glob("*.yaml"))


def load(name: str = PAPER) -> Claims:
    """Installed claims by their name, or those of a YAML file by its path.

    Raises InputError with file, line and key of every mistake.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name)
    else:
        path = shared("experiments") / "claims" / f"{name}.yaml"
        if not path.is_file():
            hint = yamltext.nearest(name, names())
            raise InputError(f"there are no claims named {name!r}{hint}", "name a YAML file of claims")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "name a YAML file of claims") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text", "name a YAML file of claims") from error
    return yamltext.parse(text, Claims, str(path))


def find(claims: Claims, claim_id: str) -> Claim:
    """The claim of this id; an unknown one is an InputError that suggests the nearest."""
    for claim in claims.claims:
        if claim.id == claim_id:
            return claim
    hint = yamltext.nearest(claim_id, [claim.id for claim in claims.claims])
    raise InputError(f"{claims.name} has no claim {claim_id!r}{hint}", "see: k8sdds claims --list")
