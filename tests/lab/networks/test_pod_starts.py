"""Real CNI plugins in the lab: each pod that they add sends a packet, and nothing of it is left."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from k8sdds.bundle import contents, golang
from k8sdds.networks import NETWORKS
from k8sdds.networks.datapath import LabNode
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import cache_folder
from k8sdds.testbeds.lab import cni_runner
from tests.conftest import Command
from tests.measuring import ENDS_S, experiment, running, wait, wait_for_trial

STARTS = """\
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
    sweep = STARTS.format(networks=networks, test=test, families=families)
    text = experiment(sweep, baseline="flannel-vxlan", duration_s=duration_s, warmup_s=0)
    (folder / "starts.yaml").write_text(text)
    return "starts.yaml"


def measured(k8sdds: Command, folder: Path, *experiment: str) -> None:
    """Run an experiment, and check the times of all pods."""
    done = k8sdds("run", written(folder, *experiment), "-o", "out")
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


@contextmanager
def interrupted(folder: Path, *experiment: str, duration_s: float = 0.3) -> Iterator[subprocess.Popen[str]]:
    """Run an experiment, yield when its first trial has started, and interrupt it at the end of the context."""
    with running(folder, written(folder, *experiment, duration_s=duration_s), "-o", "out") as process:
        wait_for_trial(process, 1)
        yield process
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=ENDS_S)
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
    def runs() -> bool:
        """Return whether plugins run: their caller has started the threads of all pods."""
        return any(len(list((path / "task").glob("*"))) > 1 for path in callers_of_plugins(tmp_path))

    with interrupted(tmp_path, "[flannel-vxlan]", "{name: pod-start, pods: 100}") as process:
        wait(runs, process, "plugins that run")
    assert callers_of_plugins(tmp_path) == []


@pytest.mark.usefixtures("nothing_left")
def test_services_are_removed_after_ctrl_c(tmp_path: Path) -> None:
    service = "{name: service, services: 100}"
    with interrupted(tmp_path, "[flannel-vxlan]", service, duration_s=20) as process:
        wait(lambda: list((tmp_path / "out" / "raw").glob("*/1/*")), process, "participants of the trial")
