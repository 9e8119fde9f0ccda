"""Artifacts: run folders packed so that a stranger can check them, and the check. See docs/reproduce.md.

files     which files of a run folder are packed, and which hold secrets
sums      SHA256SUMS, as coreutils writes and reads it
crate     RO-Crate metadata: a Process Run Crate
readme    the evaluator's README
packing   run folders → one archive, the same bytes for the same content
checking  an archive or its unpacked folder → every file that is changed, missing or added
"""

from __future__ import annotations

from k8sdds.artifact.archive import Description, Packed, pack
from k8sdds.artifact.verification import VerificationIssue, Verified, verify

__all__ = ["Description", "VerificationIssue", "Packed", "Verified", "pack", "verify"]
