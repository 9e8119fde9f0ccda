"""Test the fast datapath of the real weaver, unmodified, with Debian's kernel in a virtual machine.

With and without encryption; this kernel has Open vSwitch and ESP.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds import bundle, versions
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.networks import find
from tests import image_archives, kernel_objects
from tests.lab.vm import image, machine

REPOSITORY = Path(__file__).parents[3]
NETWORKS = ("weavenet", "weavenet-encrypt")

pytestmark = [
    # Booting the emulated machine takes two to six minutes, for each network.
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the virtual machine is an amd64 one"),
]


@pytest.fixture(scope="module", params=NETWORKS)
def observed(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Return the result of tests/lab/vm/weave_guest.py."""
    archives = image_archives.of("weavenet")
    # /tmp of the virtual machine is its own.
    build = REPOSITORY / "build"
    build.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="weave-", dir=build))
    try:
        created = bundle.create(folder / "bundle", [HOST_ARCH], archives=archives)
        image.unpack(created, versions.WEAVE_IMAGE, folder / "image")
        (folder / "image/opt/cni/bin/weave-net").symlink_to("/usr/bin/weaveutil")
        guest = machine.python("-m", "tests.lab.vm.weave_guest", str(folder / "image"), request.param)
        results, output = machine.run(guest)
        assert results, output[-6000:]
        assert "failed" not in results[-1], json.dumps(results[-1])[-6000:]
        yield results[-1]
    finally:
        shutil.rmtree(folder)


def test_all_connections_use_the_fast_datapath(observed: dict[str, Any]) -> None:
    encrypted = " +encrypted" if observed["network"] == "weavenet-encrypt" else ""
    expected = f"established{encrypted} +fastdp"
    for lines in observed["connections"].values():
        assert len(lines) == 2 and all(re.search(expected, line) for line in lines), lines


def test_packets_of_the_full_size_pass_between_nodes(observed: dict[str, Any]) -> None:
    assert " 0% packet loss" in observed["ping"], observed["ping"]


def test_multicast_reaches_both_receivers_completely(observed: dict[str, Any]) -> None:
    assert observed["multicast"] == {"node1": 100, "node2": 100}


def test_packets_are_encrypted_in_transport_mode(observed: dict[str, Any]) -> None:
    states, policies = observed["xfrm"]
    if observed["network"] == "weavenet":
        assert states == policies == ""
        return
    assert len(re.findall(r"proto esp .*?mode transport", states)) == 4, states
    assert len(re.findall(r"aead rfc4106\(gcm\(aes\)\) 0x[0-9a-f]{72} 128", states)) == 4, states
    assert len(re.findall(r"proto udp .*?dir out .*?mark 0x20000/0x20000 ", policies)) == 2, policies


def test_all_traces_are_removed(observed: dict[str, Any]) -> None:
    removal = observed["removal"]
    assert "device datapath" in removal["made"]
    assert removal["left"] == []


def test_the_lab_has_the_objects_of_the_daemon(observed: dict[str, Any]) -> None:
    """Except those that its network declares, and the rules of kube-proxy and weave-npc."""
    network = observed["network"]
    if not find(network).kernel_differences:
        pytest.skip(f"{network} is not compared: the lab negotiates its keys by IKEv2")
    lab, daemon = observed["lab"], observed["objects"]
    assert len(daemon) > 100
    assert kernel_objects.undeclared(lab, daemon, find(network).kernel_differences) == []
