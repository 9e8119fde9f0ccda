"""Files of claims by name or path."""

from __future__ import annotations

from k8sdds.claims.model import Claim, Claims
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.shipped import ShippedFiles

PAPER = "k8sdds-paper"
"""The claims of the study that k8sdds follows."""


CLAIMS = ShippedFiles("experiments/claims", "claims file")


def names() -> list[str]:
    """Names of the installed files of claims."""
    return CLAIMS.names()


def load(name: str = PAPER) -> Claims:
    """Installed claims by their name, or those of a YAML file by its path.

    Raises InputError with file, line and key of every mistake.
    """
    path, text = CLAIMS.read(name)
    return yaml_text.parse(text, Claims, str(path))


def read(name: str = PAPER) -> str:
    """The text of a file of claims. InputError where there is none, or it is no text."""
    return CLAIMS.read(name)[1]


def find(claims: Claims, claim_id: str) -> Claim:
    """The claim of this id; an unknown one is an InputError that suggests the nearest."""
    for claim in claims.claims:
        if claim.id == claim_id:
            return claim
    hint = yaml_text.nearest(claim_id, [claim.id for claim in claims.claims])
    raise InputError(f"{claims.name} has no claim {claim_id!r}{hint}", "see: k8sdds claims --list")
