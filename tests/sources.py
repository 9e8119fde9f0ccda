"""Find the sources of programs that bundles build from repositories, for tests without internet access."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8sdds import versions
from tests.published_data import VARIABLE

KUBE_ROUTER = {
    "kube-router": f"kube-router-{versions.KUBE_ROUTER}.tar.gz",
    # A version that not every module proxy serves.
    "github.com/vishvananda/netlink": "netlink-99e979749d3e.tar.gz",
}
"""Program or Go module to an archive in `sources` of the test data."""


def kube_router() -> list[str]:
    """Return the options of `bundle create` that name kube-router's sources. Skips the test if they are missing."""
    folder = Path(os.environ.get(VARIABLE, ""), "sources")
    if VARIABLE not in os.environ or not all((folder / name).is_file() for name in KUBE_ROUTER.values()):
        pytest.skip(f"the sources of kube-router are missing: set {VARIABLE} to a folder with sources/")
    return [f"--source={name}={folder / archive}" for name, archive in KUBE_ROUTER.items()]
