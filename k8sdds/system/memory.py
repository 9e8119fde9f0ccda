"""Check the limit of the memory of this process."""

from __future__ import annotations

import resource

from k8sdds.system.errors import PrerequisiteError

ANALYSIS_BYTES = 1 << 30
"""Address space for pandas, pyarrow and matplotlib. With less, they can crash or hang instead of raising."""


def require_address_space() -> None:
    """Check that the process may use as much address space as the analysis needs."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < ANALYSIS_BYTES:
        raise PrerequisiteError(
            f"not enough memory: the limit is {limit >> 20} MiB, and the analysis needs {ANALYSIS_BYTES >> 20} MiB",
            "raise the limit: ulimit -v unlimited",
        )
