"""Check the limit of the memory of this process."""

from __future__ import annotations

import resource

from k8sdds.system.errors import PrerequisiteError

ANALYSIS_BYTES = 1 << 30
"""Address space for pandas, pyarrow and matplotlib. With less, they can crash or hang instead of raising."""


def require_address_space(needed: int = ANALYSIS_BYTES) -> None:
    """Check that the process may use this much address space.

    Raises:
        PrerequisiteError: A limit of the process is lower.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise PrerequisiteError(
            f"not enough memory: the limit is {limit >> 20} MiB, and the analysis needs {needed >> 20} MiB",
            "raise the limit: ulimit -v unlimited",
        )
