"""Test pods of another architecture on a real cluster: perftest for arm64 together with amd64."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from k8sdds.bundle import emulation
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.kubernetes import exec_stream
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.testbeds.cluster import namespace, pods
from tests.cluster.conftest import ENDS_S, Command, User
from tests.clusters import Deployed

pytestmark = pytest.mark.long
OTHER = "amd64" if HOST_ARCH == "arm64" else "arm64"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
IMAGE = "k8sdds.local/perftest:0.1.0"
EMULATOR = emulation.inside(OTHER)
UNNAMED = "k8sdds.local/perftest:foreign"
"""The same image with a name that does not contain the architecture."""
SPACE = "k8sdds-mixed"


def on_node(one_machine: Deployed, node: str, *args: str) -> None:
    exec_ = ("nodes", "exec", f"{one_machine.name}/{node}", "--")
    one_machine.k8sdds(*exec_, "ctr", "-n", "k8s.io", "images", *args)


@pytest.fixture(scope="module")
def other_image(one_machine: Deployed) -> Iterator[str]:
    """The perftest image of the other architecture, loaded onto all nodes by the command."""
    args = ("images", "load", "one-machine", "perftest", "--emulate", OTHER)
    try:
        done = one_machine.k8sdds(*args, timeout_s=1800)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "".join(f"{node}: {IMAGE}-{OTHER}\n" for node in one_machine.nodes)
        yield f"{IMAGE}-{OTHER}"
    finally:
        for node in one_machine.nodes:
            on_node(one_machine, node, "rm", f"{IMAGE}-{OTHER}", UNNAMED)


@pytest.fixture
def pod_addresses(admin: KubernetesClient, other_image: str) -> Iterator[dict[str, str]]:
    """Start one pod per architecture, on different nodes; return address by name."""
    admin.create(f"{CORE}/namespaces", namespace.manifest("mixed", "mixed", privileged=False))
    path = f"{CORE}/namespaces/{SPACE}/pods"
    for name, node, image, command in (
        (HOST_ARCH, "worker1", IMAGE, []),
        (OTHER, "worker2", other_image, [EMULATOR]),
    ):
        pod = pods.pod(name, pods.Slot("sub0", "sub", node, False), image, "mixed", pods.memory_bytes([]))
        pod["spec"]["containers"][0]["command"] = [*command, pods.SUPERVISOR, "pause"]
        admin.create(path, pod)
    deadline = time.monotonic() + 300
    while True:
        pods_by_name = {item["metadata"]["name"]: item for item in admin.get(path)["items"]}
        if all(pods.is_ready(item) for item in pods_by_name.values()):
            break
        assert time.monotonic() < deadline, [item["status"] for item in pods_by_name.values()]
        time.sleep(0.5)
    yield {name: item["status"]["podIP"] for name, item in pods_by_name.items()}
    admin.delete(f"{CORE}/namespaces/{SPACE}")
    namespace.wait_deleted(admin, SPACE, ENDS_S)


def test_both_architectures_exchange_samples(admin: KubernetesClient, pod_addresses: dict[str, str]) -> None:
    """Excludes Fast DDS, because it needs a socket option that qemu 7.2 does not support (IP_MULTICAST_IF)."""

    def perftest(arch: str, middleware: str, *args: str) -> exec_stream.CommandResult:
        (peer,) = [address for name, address in pod_addresses.items() if name != arch]
        start = [EMULATOR] if arch == OTHER else []
        kind = ("-bestEffort",) if middleware == "raw" else ()
        both = (*kind, "-middleware", middleware, "-peer", peer, "-nic", "eth0", "-discoveryTimeout", "60",
                "-peerTimeout", "30", "-noPrintIntervals", "-outputFormat", "json")  # fmt: skip
        return exec_stream.run_command(admin, SPACE, arch, [*start, pods.PERFTEST, *args, *both], 120)

    facts = exec_stream.run_command(admin, SPACE, OTHER, [EMULATOR, pods.SUPERVISOR, "facts"])
    assert json.loads(facts.stdout)["architecture"] == MACHINES[OTHER]
    numbers = ("-numIter", "500", "-pubRate", "200:sleep", "-dataLen", "1024")
    for middleware in ("raw", "cyclonedds"):
        for publisher, subscriber in ((HOST_ARCH, OTHER), (OTHER, HOST_ARCH)):
            with ThreadPoolExecutor(1) as side:
                other = side.submit(perftest, subscriber, middleware, "-sub")
                sent = perftest(publisher, middleware, "-pub", *numbers)
                received = other.result()
            assert (sent.code, received.code) == (0, 0), (middleware, sent.stderr, received.stderr)
            summary = json.loads(received.stdout)["perftest"][0]["summary"]
            assert (summary["packets"], summary["lost"]) == (500, 0) or middleware == "raw"
            assert summary["packets"] > 0
    loads = (EMULATOR, pods.PERFTEST, "-sub", "-middleware", "fastdds", "-check")
    checked = exec_stream.run_command(admin, SPACE, OTHER, loads)
    assert checked.code == 0, checked.stderr


def test_a_pod_of_the_wrong_architecture_is_named(
    k8sdds: Command,
    user: User,
    admin: KubernetesClient,
    one_machine: Deployed,
    other_image: str,
    tmp_path: Path,
) -> None:
    """If the image's name contains the architecture, before anything is created; else before the first trial."""
    args = ("run", "quickstart", *user.options, "--repeat", "1", "--duration", "1", "-o", "run")
    done = k8sdds(*args, "--image", other_image)
    assert done.returncode == 2, done.stderr
    assert f"runs on {OTHER} only" in done.stderr and f"--image {IMAGE}" in done.stderr
    assert not (tmp_path / "run").exists()

    for node in one_machine.nodes:
        on_node(one_machine, node, "tag", other_image, UNNAMED)
    deadline = time.monotonic() + 300
    while not all(
        UNNAMED in json.dumps(node["status"]["images"]) for node in admin.get(f"{CORE}/nodes")["items"]
    ):
        assert time.monotonic() < deadline, "the kubelets do not report the image"
        time.sleep(1)
    done = k8sdds(*args, "--image", UNNAMED)
    assert done.returncode in (3, 5), (done.returncode, done.stderr)
    assert "exec format error" in done.stderr and "another architecture" in done.stderr
    assert "Traceback" not in done.stderr
    trials = tmp_path / "run/trials.jsonl"
    assert not trials.exists() or not trials.read_text()
