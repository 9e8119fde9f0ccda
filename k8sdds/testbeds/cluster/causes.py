"""Find out what caused an error."""

from __future__ import annotations

from collections.abc import Iterator

from k8sdds.kubernetes.client import AUTHORIZATION_STATUSES, ApiError
from k8sdds.system.ssh import HostLost


def is_by_lost_host(error: BaseException) -> bool:
    """Return whether the loss of an SSH connection caused an error."""
    return any(isinstance(cause, HostLost) for cause in _causes(error))


def is_refusal(error: BaseException) -> bool:
    """Return whether the API server refused a request that it will refuse again."""
    return any(
        isinstance(cause, ApiError) and cause.status in AUTHORIZATION_STATUSES for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it."""
    while error is not None:
        yield error
        error = error.__cause__
