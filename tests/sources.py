"""Find the sources of programs that bundles build from repositories, for tests without internet access."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from k8sdds import versions
from tests.conftest import SOURCES_MISSING
from tests.published_data import VARIABLE

KUBE_ROUTER = {
    "kube-router": f"kube-router-{versions.KUBE_ROUTER}.tar.gz",
    # A version that not every module proxy serves.
    "kube-router:github.com/vishvananda/netlink": "netlink-99e979749d3e.tar.gz",
}
"""Name of `--source` to an archive in `sources` of the test data."""
WEAVENET = {"weavenet": f"weave-{versions.WEAVE}.tar.gz"}


def kube_router() -> list[str]:
    """Return the options of `bundle create` that name kube-router's sources. Skips the test if they are missing."""
    return [f"--source={name}={path}" for name, path in archives(KUBE_ROUTER).items()]


def archives(names: Mapping[str, str]) -> dict[str, Path]:
    """Return the paths of archives in the test data, by the name of `--source`. Skips the test if one is missing."""
    folder = Path(os.environ.get(VARIABLE, ""), "sources")
    if VARIABLE not in os.environ or not all((folder / name).is_file() for name in names.values()):
        pytest.skip(
            f"{SOURCES_MISSING}: set {VARIABLE} to a folder with sources/{next(iter(names.values()))}"
        )
    return {name: folder / archive for name, archive in names.items()}
