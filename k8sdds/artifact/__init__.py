"""Pack run folders into an artifact that others can verify, and verify artifacts. See docs/how-to/publish.md."""

from __future__ import annotations

from k8sdds.artifact.archive import PackedArtifact, check_output, pack
from k8sdds.artifact.contents import Description
from k8sdds.artifact.verification import Verification, VerificationIssue, verify
from k8sdds.artifact.zip_format import UNSEALED_FORMAT

__all__ = [
    "UNSEALED_FORMAT", "Description", "PackedArtifact", "Verification", "VerificationIssue", "check_output", "pack",
    "verify",
]  # fmt: skip
