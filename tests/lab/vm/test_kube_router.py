"""Test IP in IP of the real kube-router between two subnets, with Debian's kernel in a virtual machine."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds import bundle, versions
from k8sdds.bundle import golang
from k8sdds.bundle.contents import HOST_ARCH, PROGRAMS
from k8sdds.networks.cluster_install import bridge_cni_config, container, find
from k8sdds.networks.kube_router.cluster import CNI_NAME
from k8sdds.system import yaml_text
from k8sdds.system.paths import shared
from tests import image_archives
from tests.lab.vm import control_plane, image, machine

REPOSITORY = Path(__file__).parents[3]
NODES = {"node0": "10.88.1.11", "node1": "10.88.1.12", "node2": "10.88.2.11"}
PODS = {name: f"10.244.{number}.0/24" for number, name in enumerate(NODES)}
SUBNETS = "10.88.0.0/16"
"""All addresses of nodes."""
pytestmark = [
    # Booting the emulated machine takes two to four minutes.
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="a tap needs root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the virtual machine is an amd64 one"),
]


def prepare(folder: Path) -> None:
    """Put the image of kube-router, with the CNI plugins that nodes have, into a folder."""
    archives = image_archives.of("kube-router")
    created = bundle.create(folder / "bundle", [HOST_ARCH], archives=archives)
    image.unpack(created, versions.KUBE_ROUTER_IMAGE, folder / "image")
    for name in ("bridge", "host-local"):
        shutil.copy(golang.build(PROGRAMS[name], HOST_ARCH, print), folder / "image/opt/cni/bin" / name)


def plan(folder: Path) -> dict[str, Any]:
    """Return what tests/lab/vm/kube_router_guest.py needs to know, with the options of the manifest of k8sdds."""
    (manifest,) = (shared("deploy") / "networks/kube-router").glob("*.yaml")
    objects = yaml_text.load_all(manifest.read_text())
    return {
        "nodes": NODES, "pods": PODS, "nic": machine.NIC, "address": f"{machine.GUEST}/24",
        "options": container(find(objects, "DaemonSet", "kube-router"), "kube-router")["args"],
        "cni": bridge_cni_config(CNI_NAME, "kube-bridge", None),
        "in_image": {name: image.command(str(folder / "image"), name) for name in NODES},
    }  # fmt: skip


def node(name: str) -> dict[str, Any]:
    """Return a Node as a kubelet creates it, with the subnet that the controller manager adds."""
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"podCIDR": PODS[name], "podCIDRs": [PODS[name]]},
        "status": {"addresses": [{"type": "InternalIP", "address": NODES[name]}]},
    }  # fmt: skip


@pytest.fixture(scope="module")
def observed() -> Iterator[dict[str, Any]]:
    """Return the result of tests/lab/vm/kube_router_guest.py."""
    # /tmp of the virtual machine is its own.
    build = REPOSITORY / "build"
    build.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="kube-router-", dir=build))
    sandbox = machine.sandbox("kube-router-vm")
    try:
        prepare(folder)
        (folder / "plan.json").write_text(json.dumps(plan(folder)))
        sandbox.run(["ip", "route", "add", SUBNETS, "via", machine.GUEST])
        control_plane.start(sandbox, machine.HOST, folder).create([node(name) for name in NODES])
        guest = machine.python(str(Path(__file__).with_name("kube_router_guest.py")), str(folder))
        results, output = machine.run(guest, sandbox)
        assert results, output[-6000:]
        assert "error" not in results[-1], json.dumps(results[-1], indent=1)
        yield results[-1]
    finally:
        sandbox.close()
        shutil.rmtree(folder)


def test_only_nodes_of_other_subnets_are_behind_a_tunnel(observed: dict[str, Any]) -> None:
    routes, links = observed["routes"]["node0"], observed["links"]
    assert re.search(r"10\.244\.1\.0/24 via 10\.88\.1\.12 dev eth0", routes), routes
    assert re.search(r"10\.244\.2\.0/24 dev (tun-[0-9a-f]{11})", routes), routes
    tunnels = re.findall(r"tun-[0-9a-f]{11}@.* ipip any remote (\S+) local (\S+) ", links)
    assert tunnels == [("10.88.2.11", "10.88.1.11")], links


def test_packets_between_subnets_are_ip_in_ip(observed: dict[str, Any]) -> None:
    """The router between the subnets sees the outer packets only."""
    assert " 0% packet loss" in observed["same subnet"], observed["same subnet"]
    assert " 0% packet loss" in observed["other subnet"], observed["other subnet"]
    assert counted(observed["router after the same subnet"]) == (0, 0)
    encapsulated, plain = counted(observed["router"])
    assert encapsulated >= 10 and plain == 0


def test_packets_larger_than_the_tunnel_do_not_pass(observed: dict[str, Any]) -> None:
    assert " 100% packet loss" in observed["too large"], observed["too large"]


def counted(rules: str) -> tuple[int, int]:
    """Return the packets that the router counted: IP in IP, and unencapsulated pings."""
    encapsulated, plain = re.findall(r"counter packets (\d+)", rules)
    return int(encapsulated), int(plain)
