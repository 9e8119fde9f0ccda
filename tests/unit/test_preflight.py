"""Preflight on recorded facts: of this project's build machine, and changed to what is known of Raspberry Pis."""

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.deploy import facts, preflight
from k8sdds.deploy.actions import HASHES
from k8sdds.deploy.facts import Facts, probe
from k8sdds.model.profile import Profile
from k8sdds.system import yaml_text
from k8sdds.system.errors import Problem

RECORDED = (Path(__file__).parent / "recorded" / "probe-debian12-x86_64.txt").read_text()
PROFILE = """\
name: mine
nodes:
  - {name: master, roles: [control-plane]}
  - {name: pi1}
"""


def changed(**values: str) -> str:
    """The recorded probe on a machine that fits, with other values of some facts."""
    text = RECORDED + "resolves\tmaster\nresolves\tpi1\n"
    for key, value in {"init": "systemd", **values}.items():
        key = key.replace("__", ".")
        text, count = re.subn(rf"^{key}\t.*$", f"{key}\t{value}", text, flags=re.M)
        if not count:
            text += f"{key}\t{value}\n"
    return text


def judged(text: str, profile: str = PROFILE, node: str = "pi1") -> list[Problem]:
    wanted = yaml_text.parse(profile, Profile, "mine.yaml")
    return preflight.check(wanted, {node: facts.parse(text)})


def test_a_machine_that_fits() -> None:
    assert judged(changed()) == [] and judged(changed(), node="master") == []


PI = {
    "machine": "aarch64",
    "userland": "arm64",
    "kernel": "6.6.51+rpt-rpi-v8",
    "os__PRETTY_NAME": "Raspberry Pi OS",
}


@pytest.mark.parametrize(
    ("values", "said", "remedy"),
    [
        ({**PI, "controllers": "cpuset cpu io pids", "boot_file": "/boot/firmware/cmdline.txt"}, "memory cgroup", "/boot/firmware/cmdline.txt: cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory"),
        ({**PI, "controllers": "cpuset cpu io pids"}, "memory cgroup", "netbooted"),
        ({**PI, "userland": "armhf"}, "has a system for arm on a kernel for arm64", "64-bit"),
        ({"machine": "armv7l", "userland": "armhf"}, "ended with Kubernetes 1.26", "64-bit"),
        ({"machine": "riscv64", "userland": "riscv64"}, "not supported", "arm64"),
        ({"os__ID": "fedora"}, "not of the Debian family", "Raspberry Pi OS"),
        ({"kernel": "4.9.0-1"}, "older than 4.19", "upgrade"),
        ({"init": "init"}, "not systemd", "booted with systemd"),
        ({"swap_kib": "102396"}, "99 MiB of swap", "dphys-swapfile"),
        ({"memory_kib": "443004"}, "432 MiB of memory, a worker needs", "larger"),
        ({"route": ""}, "no default route", "network.interface"),
        ({"marker": "other"}, "belongs to the cluster 'other'", "destroy"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_its_remedy(values: dict[str, str], said: str, remedy: str) -> None:
    problems = judged(changed(**values))
    assert [p for p in problems if said in p.what and remedy in p.remedy and p.what.startswith("pi1: ")], (
        problems
    )


def test_the_expected_architecture() -> None:
    profile = PROFILE.replace("name: pi1", "name: pi1, architecture: arm64")
    assert "is amd64 where the profile expects arm64" in judged(changed(), profile)[0].what
    assert judged(changed(**PI), profile) == []


@pytest.mark.parametrize(
    ("network", "lacking"),
    [
        ("flannel-wireguard", ["wireguard"]),
        ("weavenet", ["openvswitch"]),
        ("flannel-hostgw", []),
        ("kube-router", []),
    ],
)
def test_features_that_a_network_needs(network: str, lacking: list[str]) -> None:
    told = [p.what for p in judged(changed(), PROFILE + f"network: {network}\n")]
    assert len(told) == len(lacking)
    assert all(f"cannot do {feature}" in line for feature, line in zip(lacking, told, strict=True))


def test_an_existing_cluster_is_refused_but_our_own_is_not() -> None:
    leftovers = "leftover\t/etc/kubernetes/kubelet.conf\nserver\thttps://10.0.0.9:6443\nlistens\t10250\n"
    (problem,) = judged(changed() + leftovers)
    assert "of https://10.0.0.9:6443 that k8sdds has not made" in problem.what
    assert judged(changed(marker="mine") + leftovers) == []


def test_a_control_plane_whose_data_was_lost_is_not_taken_for_one() -> None:
    text = changed(marker="mine") + "flag\tinitialised\n"
    assert judged(text + "kube.api\tready\n", node="master") == []
    # An interrupted kubeadm init: the next one begins anew.
    assert judged(changed(marker="mine") + "kube.api\tforbidden\n", node="master") == []
    (problem,) = judged(text + "kube.api\tforbidden\n", node="master")
    assert "has lost what kubeadm wrote" in problem.what and "k8sdds destroy mine" in problem.remedy


def test_leftovers_of_another_network_and_taken_ports() -> None:
    told = [
        p.what for p in judged(changed() + "leftover\t/etc/cni/net.d/10-weave.conflist\nlistens\t10250\n")
    ]
    assert "/etc/cni/net.d/10-weave.conflist" in told[0] and "port 10250 is taken" in told[1]
    # A worker has no API server, so its port matters on the control plane alone.
    assert judged(changed() + "listens\t6443\n") == []
    assert judged(changed() + "listens\t6443\n", node="master")


@pytest.mark.parametrize(("apart_s", "told"), [(2, 0), (4000, 1), (-4000, 1)])
def test_clocks_apart(apart_s: float, told: int) -> None:
    wanted = yaml_text.parse(PROFILE, Profile, "mine.yaml")
    text = changed()
    epoch = float(re.search(r"^epoch\t(.*)$", text, re.M)[1])  # type: ignore[index]
    both = {
        "master": facts.parse(text, epoch - 0.1, epoch + 0.1),
        "pi1": facts.parse(text, epoch - apart_s - 0.1, epoch - apart_s + 0.1),
    }
    assert len(preflight.check(wanted, both)) == told


@pytest.mark.parametrize(
    ("containerd", "version", "problems", "notes"),
    [
        ("1.6.20", "1.36.3", 0, 1),
        ("1.6.20~ds1", "1.37.0", 1, 0),
        ("2.1.4", "1.37.0", 0, 0),
        ("v2.4.2", "1.36.3", 0, 0),
    ],
)
def test_containerd_against_kubernetes(containerd: str, version: str, problems: int, notes: int) -> None:
    profile = yaml_text.parse(PROFILE + f"kubernetes: {{version: {version}}}\n", Profile, "mine.yaml")
    seen = {"pi1": facts.parse(changed(containerd=containerd, hostname="pi1"))}
    assert len(preflight.check(profile, seen)) == problems
    assert len([line for line in preflight.notes(profile, seen) if "containerd" in line]) == notes


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    found = facts.parse(text, 0.0, 1.0) if "epoch" not in text else facts.parse(text)
    assert isinstance(found, Facts)
    wanted = yaml_text.parse(PROFILE, Profile, "mine.yaml")
    assert all(str(problem) for problem in preflight.check(wanted, {"pi1": found}))


def test_a_file_is_read_unless_it_is_as_deploy_left_it(tmp_path: Path) -> None:
    names = ("untouched", "touched", "replaced", "new")
    paths = {name: tmp_path / name for name in names}
    known = tmp_path / "hashes"
    for name, path in paths.items():
        path.write_text(name)
        if name != "new":
            mark = ("stat", "-L", "--format", "%n %i %s %.9Y %.9Z", path)
            said = subprocess.run(mark, capture_output=True, text=True, check=True).stdout.strip()
            # No file has this hash: where it is told, the file was not read.
            with known.open("a") as file:
                file.write(f"{said} {name}\n")
    os.utime(paths["touched"])
    times = paths["replaced"].stat()
    paths["replaced"].write_text("another!"[: times.st_size])
    os.utime(paths["replaced"], ns=(times.st_atime_ns, times.st_mtime_ns))
    files = " ".join(map(str, (*paths.values(), tmp_path / "missing")))
    script = f"FILES='{files}'\n" + probe.FILE_HASHES.replace(HASHES, str(known))
    said = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True, timeout=20).stdout
    assert facts.parse(said).pairs("file") == {
        str(path): name if name == "untouched" else hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
    }
    # Nobody has deployed anything yet.
    known.unlink()
    said = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=20).stdout
    assert len(facts.parse(said).pairs("file")) == 4


@pytest.mark.parametrize(
    ("says", "api"),
    [
        ("echo Error from server: Timeout >&2; exit 1", "ready"),
        ("echo Error from server: Forbidden >&2; exit 1", "forbidden"),
        ("echo Warning: v1 Endpoints is deprecated >&2", "ready"),
    ],
)
def test_an_api_server_that_is_late_once_is_asked_again(tmp_path: Path, says: str, api: str) -> None:
    # A program in kubectl's place: no real server fails once when it is told to.
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!/bin/sh\nseen={tmp_path}/seen-${{3%%,*}}\n[ -e $seen ] || {{ : >$seen; {says}; }}\n"
        'case $3 in nodes) printf "kube.node\\tone True  {}\\n" ;; *) printf "kube.object\\tA//b c\\n" ;; esac\n'
    )
    program.chmod(0o755)
    script = (
        f'has() {{ :; }}\nsay() {{ printf \'%s\\t%s\\n\' "$1" "$2"; }}\nwork={tmp_path}\n' + probe.CLUSTER
    )
    for path in ("/etc/kubernetes/admin.conf", probe.MARKER):
        script = script.replace(path, str(program))
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, timeout=20, env={"PATH": path}
    )
    found = facts.parse(done.stdout)
    assert found.values["kube.api"] == api, done.stderr
    if api == "ready":
        assert found.all("kube.node") == ("one True  {}",) and found.all("kube.object") == ("A//b c",)


def test_why_an_api_server_does_not_answer_is_told() -> None:
    profile = yaml_text.parse(PROFILE, Profile, "mine.yaml")
    seen = {"master": facts.parse(changed() + "kube.api\tThe connection to the server was refused\n")}
    notes = preflight.notes(profile, seen)
    assert "master: its API server does not answer: The connection to the server was refused" in notes
