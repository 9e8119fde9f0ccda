"""Test the claims of a study against the trials in run folders. This module loads claims files by name or path."""

from __future__ import annotations

import functools

from k8sdds.claims.model import Claim, Claims
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.shipped import ShippedFiles

PAPER = "k8sdds-paper"
"""The claims of the study that k8sdds follows."""

CLAIMS = ShippedFiles(("experiments/claims",), "set of claims", "k8sdds list studies")


def load(name: str = PAPER) -> Claims:
    """Load an installed claims file by name, or a YAML file by path."""
    path, text = CLAIMS.read(name)
    return _parse(text, str(path))


# The file of the study takes half a second to parse.
@functools.cache
def _parse(text: str, source: str) -> Claims:
    return yaml_text.parse(text, Claims, source)


def find(claims: Claims, claim_id: str) -> Claim:
    """Return the claim with the given id."""
    for claim in claims.claims:
        if claim.id == claim_id:
            return claim
    hint = yaml_text.nearest(claim_id, [*(claim.id for claim in claims.claims), *CLAIMS.names()])
    raise InputError(
        f"{claims.name} has no claim {claim_id!r}{hint}",
        "list the claims: k8sdds claims --list; list the studies: k8sdds list studies",
    )
