"""Define IP families: which IP versions nodes and pods have, and which one participants use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from k8sdds.system.strict import as_list

IpFamily = Literal["ipv4", "ipv6"]


def _different(families: tuple[IpFamily, ...]) -> tuple[IpFamily, ...]:
    if len(set(families)) < len(families):
        raise ValueError("a family is listed twice")
    return families


IpFamilies = Annotated[
    tuple[IpFamily, ...], BeforeValidator(as_list), Field(min_length=1, max_length=2), AfterValidator(_different)
]  # fmt: skip
"""One family, or both: the first is the one that is used. Kubernetes calls it the primary family."""

DEFAULT: tuple[IpFamily, ...] = ("ipv4",)

IP_AND_UDP_HEADERS_BYTES: dict[IpFamily, int] = {"ipv4": 28, "ipv6": 48}
"""What the MTU of an interface holds in addition to a message."""
