"""Real CNI plugins in the lab: each pod that they add sends a packet, and nothing of it is left."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from k8sdds.bundle import contents, golang
from k8sdds.networks import NETWORKS
from k8sdds.networks.datapath import LabNode
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import cache_folder
from k8sdds.testbeds.lab import cni_runner
from tests.conftest import K8SDDS, Command, environment

STARTS = """\
name: starts
baseline: flannel-vxlan
repetitions: 1
duration_s: {duration_s}
warmup_s: 0
sweeps:
  - networks: {networks}
    test: {test}
    payload_bytes: 64
    ip_families: {families}
"""


@pytest.fixture(scope="module", autouse=True)
def plugins() -> Iterator[None]:
    """Have the programs of the plugins in the cache, which the commands of these tests share."""
    for network in NETWORKS.values():
        for name in network.cni_plugins([LabNode(0)], 1500).programs if network.cni_plugins else ():
            try:
                golang.build(contents.PROGRAMS[name], contents.HOST_ARCH, lambda _: None)
            except PrerequisiteError as error:
                pytest.skip(f"the CNI plugin {name} cannot be built: {error.message}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_CACHE_DIR", str(cache_folder()))
        yield


def written(folder: Path, networks: str, test: str, families: str = "[ipv4]", duration_s: float = 0.3) -> str:
    text = STARTS.format(networks=networks, test=test, families=families, duration_s=duration_s)
    (folder / "starts.yaml").write_text(text)
    return "starts.yaml"


def measured(k8sdds: Command, folder: Path, *experiment: str) -> None:
    """Run an experiment, and check the times of all pods."""
    done = k8sdds("run", written(folder, *experiment), "-o", "out", timeout_s=300)
    assert done.returncode == 0, done.stderr
    run = RunFolder.open(folder / "out")
    for record in run.attempts():
        if not record["valid"]:
            continue
        path = run.raw(record["trial_id"], record["attempt"]) / "pod-starts.json"
        pods = json.loads(path.read_text())["pods"]
        assert len(pods) == record["pods"]
        took = [pod["network_ready_s"] - pod["scheduled_s"] for pod in pods.values()]
        assert min(took) > 0 and record["pod_network_s"] == pytest.approx(sum(took) / len(took))
        assert record.get("pods_ready_s") is None and record.get("missing") is None
        print(record["network"], record["pods"], f"{record['pod_network_s'] * 1e3:.1f} ms")


@pytest.mark.usefixtures("nothing_left")
def test_plugins_add_pods_at_once(k8sdds: Command, tmp_path: Path) -> None:
    measured(k8sdds, tmp_path, "[flannel-vxlan]", "{name: pod-start, pods: 5}")


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_plugins_of_all_networks_add_pods(k8sdds: Command, tmp_path: Path) -> None:
    networks = "[flannel-vxlan, flannel-hostgw, kube-router, macvlan]"
    measured(k8sdds, tmp_path, networks, "[pod-start, {name: pod-start, pods: 100}]")


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("families", ["[ipv6]", "[ipv4, ipv6]"])
def test_plugins_assign_addresses_of_all_families(k8sdds: Command, tmp_path: Path, families: str) -> None:
    networks = "[flannel-vxlan, kube-router, macvlan]"
    measured(k8sdds, tmp_path, networks, "{name: pod-start, pods: 5}", families)


def started(folder: Path, *experiment: str, duration_s: float = 0.3) -> Generator[str]:
    """Start an experiment and interrupt it when the caller requests it; yield the lines of its output until then."""
    argv = [str(K8SDDS), "run", written(folder, *experiment, duration_s=duration_s), "-o", "out"]
    process = subprocess.Popen(
        argv, cwd=folder, env=environment(folder), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield from process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    (attempt,) = RunFolder.open(folder / "out").attempts()
    assert attempt["reason"].startswith("interrupted: ")


def callers_of_plugins(folder: Path) -> list[Path]:
    """Return the running processes that call CNI plugins for the lab of a test."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            runs = cni_runner.__file__.encode() in (path / "cmdline").read_bytes().split(b"\0")
            of_test = str(folder).encode() in (path / "environ").read_bytes()
        except OSError:
            continue
        found += [path] if runs and of_test and (path / "task").is_dir() else []
    return found


@pytest.mark.usefixtures("nothing_left")
def test_pods_are_deleted_after_ctrl_c(tmp_path: Path) -> None:
    lines = started(tmp_path, "[flannel-vxlan]", "{name: pod-start, pods: 100}")
    while not next(lines).startswith("[1/"):
        pass
    # While plugins run: their caller has started the threads of all pods.
    deadline = time.monotonic() + 60
    while not any(len(list((path / "task").glob("*"))) > 1 for path in callers_of_plugins(tmp_path)):
        assert time.monotonic() < deadline
    lines.close()
    assert callers_of_plugins(tmp_path) == []


@pytest.mark.usefixtures("nothing_left")
def test_services_are_removed_after_ctrl_c(tmp_path: Path) -> None:
    lines = started(tmp_path, "[flannel-vxlan]", "{name: service, services: 100}", duration_s=20)
    while not next(lines).startswith("[1/"):
        pass
    lines.close()
