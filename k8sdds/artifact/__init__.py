"""Pack run folders into an artifact that others can verify, and verify artifacts. See docs/how-to/publish.md.

files         select the files to pack
secrets       detect secrets in files
zip_format    write and read the ZIP file, with limits
checksums     write and read SHA256SUMS
contents      describe the packed runs, their Python packages and machines
ro_crate      write RO-Crate metadata: a Process Run Crate
readme        write the README for evaluators
archive       pack run folders into a reproducible archive
verification  report changed, missing and added files of an artifact
"""

from __future__ import annotations

from k8sdds.artifact.archive import PackedArtifact, check_output, pack
from k8sdds.artifact.contents import Description
from k8sdds.artifact.verification import Verification, VerificationIssue, verify
from k8sdds.artifact.zip_format import UNSEALED_FORMAT

__all__ = [
    "UNSEALED_FORMAT", "Description", "PackedArtifact", "Verification", "VerificationIssue", "check_output", "pack",
    "verify",
]  # fmt: skip
