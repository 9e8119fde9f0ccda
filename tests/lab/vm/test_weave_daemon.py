"""Test the fast datapath of the real weaver, unmodified, with Open vSwitch of Debian's kernel in a virtual machine."""

from __future__ import annotations

import json
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds import bundle, versions
from k8sdds.bundle import repositories
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.system.paths import CHECKOUT
from tests import sources
from tests.lab.vm import image, machine

pytestmark = [
    # Booting the emulated machine takes two to four minutes.
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the virtual machine is an amd64 one"),
]


@pytest.fixture(scope="module")
def observed() -> Iterator[dict[str, Any]]:
    """Return the result of tests/lab/vm/weave_guest.py."""
    options = {name: str(path) for name, path in sources.archives(sources.WEAVENET).items()}
    # /tmp of the virtual machine is its own.
    (CHECKOUT / "build").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="weave-", dir=CHECKOUT / "build"))
    try:
        values = repositories.parse([f"{name}={path}" for name, path in options.items()])
        created = bundle.create(folder / "bundle", [HOST_ARCH], sources=values)
        image.unpack(created, versions.WEAVE_IMAGE, folder / "image")
        (folder / "image/opt/cni/bin/weave-net").symlink_to("/usr/bin/weaveutil")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = shlex.join(
            [f"{sys.prefix}/bin/python", "-m", "tests.lab.vm.weave_guest", str(folder / "image")]
        )
        results, output = machine.run(f"cd {shlex.quote(str(CHECKOUT))}; {path} {command}")
        assert results, output[-6000:]
        assert results[-1].get("case") == "weave", json.dumps(results[-1])[-6000:]
        yield results[-1]
    finally:
        shutil.rmtree(folder)


def test_all_connections_use_the_fast_datapath(observed: dict[str, Any]) -> None:
    for lines in observed["connections"].values():
        assert len(lines) == 2 and all(re.search("established +fastdp", line) for line in lines), lines


def test_packets_of_the_full_size_pass_between_nodes(observed: dict[str, Any]) -> None:
    assert " 0% packet loss" in observed["ping"], observed["ping"]


def test_multicast_reaches_both_receivers_completely(observed: dict[str, Any]) -> None:
    assert observed["multicast"] == {"node1": 100, "node2": 100}


def test_all_traces_are_removed(observed: dict[str, Any]) -> None:
    assert "device datapath" in observed["removal"]["made"]
    assert observed["removal"]["left"] == []
