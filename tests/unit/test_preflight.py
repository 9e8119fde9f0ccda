"""Preflight checks of recorded facts, and of facts changed to those of Raspberry Pis."""

import hashlib
import json
import os
import re
import subprocess
from ipaddress import IPv4Network
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.deploy import deploy, facts, preflight
from k8sdds.deploy.actions import HASHES
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.phases import registry
from k8sdds.model.profile import Profile
from k8sdds.system import yaml_text
from k8sdds.system.errors import Problem
from k8sdds.system.ssh import Connections

RECORDED = (Path(__file__).parent / "recorded" / "probe-debian12-x86_64.txt").read_text()
PROFILE = """\
name: mine
nodes:
  - {name: master, roles: [control-plane]}
  - {name: pi1}
"""


def changed(**values: str) -> str:
    """Return the recorded probe of a machine that fits, with other values of some facts."""
    text = RECORDED + "resolves\tmaster\nresolves\tpi1\n"
    for key, value in {"init": "systemd", **values}.items():
        key = key.replace("__", ".")
        text, count = re.subn(rf"^{key}\t.*$", f"{key}\t{value}", text, flags=re.M)
        if not count:
            text += f"{key}\t{value}\n"
    return text


def problems_of(text: str, profile: str = PROFILE, node: str = "pi1") -> list[Problem]:
    return preflight.check(parsed(profile), {node: facts.parse(text)})


def parsed(profile: str = PROFILE) -> Profile:
    return yaml_text.parse(profile, Profile, "mine.yaml")


def test_machine_that_fits_has_no_problems() -> None:
    assert problems_of(changed()) == [] and problems_of(changed(), node="master") == []


PI = {
    "machine": "aarch64",
    "userland": "arm64",
    "kernel": "6.6.51+rpt-rpi-v8",
    "os__PRETTY_NAME": "Raspberry Pi OS",
}


@pytest.mark.parametrize(
    ("values", "what", "remedy"),
    [
        ({**PI, "controllers": "cpuset cpu io pids", "boot_file": "/boot/firmware/cmdline.txt"}, "memory cgroup", "/boot/firmware/cmdline.txt and reboot: cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory"),
        ({**PI, "controllers": "cpuset cpu io pids"}, "memory cgroup", "netbooted"),
        ({**PI, "userland": "armhf"}, "has a system for arm on a kernel for arm64", "64-bit"),
        ({"machine": "armv7l", "userland": "armhf"}, "support ended with Kubernetes 1.26", "64-bit"),
        ({"machine": "riscv64", "userland": "riscv64"}, "not supported", "arm64"),
        ({"os__ID": "fedora"}, "not of the Debian family", "Raspberry Pi OS"),
        ({"kernel": "4.9.0-1"}, "older than 4.19", "upgrade"),
        ({"init": "init"}, "not systemd", "boots with systemd"),
        ({"swap_kib": "102396"}, "99 MiB of swap", "dphys-swapfile"),
        ({"memory_kib": "443004"}, "432 MiB of memory, a worker needs", "larger"),
        ({"route": ""}, "does not have a default route", "network.interface"),
        ({"marker": "other"}, "belongs to the cluster 'other'", "destroy"),
    ],
)  # fmt: skip
def test_problems_have_remedies(values: dict[str, str], what: str, remedy: str) -> None:
    problems = problems_of(changed(**values))
    assert [p for p in problems if what in p.what and remedy in p.remedy and p.what.startswith("pi1: ")], (
        problems
    )


@pytest.mark.parametrize("kind", ["pod", "service"])
def test_the_ranges_of_a_cluster_must_not_contain_the_address_of_a_node(kind: str) -> None:
    address = facts.parse(changed()).address("ipv4", None)
    inside = IPv4Network(f"{address}/16", strict=False)
    (problem,) = problems_of(changed(), f"{PROFILE}kubernetes: {{{kind}_cidr: {inside}}}\n")
    assert f"its address {address} is in the range {inside} of kubernetes.{kind}_cidr" in problem.what


def test_machine_must_have_the_expected_architecture() -> None:
    profile = PROFILE.replace("name: pi1", "name: pi1, architecture: arm64")
    assert "is amd64, but the profile expects arm64" in problems_of(changed(), profile)[0].what
    assert problems_of(changed(**PI), profile) == []


@pytest.mark.parametrize(
    ("network", "missing"),
    [
        ("flannel-wireguard", ["wireguard"]),
        ("weavenet", ["openvswitch", "dummy", "ip_set", "xt_set"]),
        ("{name: weavenet, engine: sleeve}", ["dummy", "ip_set", "xt_set"]),
        ("flannel-hostgw", []),
        ("kube-router", []),
    ],
)
def test_kernel_must_support_the_network(network: str, missing: list[str]) -> None:
    lines = [p.what for p in problems_of(changed(), PROFILE + f"network: {network}\n")]
    assert len(lines) == len(missing)
    assert all(f"does not support {feature}" in line for feature, line in zip(missing, lines, strict=True))


def test_machine_of_a_foreign_cluster_is_refused() -> None:
    leftovers = "leftover\t/etc/kubernetes/kubelet.conf\nserver\thttps://10.0.0.9:6443\nlistens\t10250\n"
    (problem,) = problems_of(changed() + leftovers)
    assert "of https://10.0.0.9:6443 that k8sdds did not create" in problem.what
    assert problems_of(changed(marker="mine") + leftovers) == []


def test_control_plane_with_lost_data_is_refused() -> None:
    text = changed(marker="mine") + "flag\tinitialised\n"
    assert problems_of(text + "kube.api\tready\n", node="master") == []
    # After an interrupted kubeadm init, deploy starts again.
    assert problems_of(changed(marker="mine") + "kube.api\tforbidden\n", node="master") == []
    (problem,) = problems_of(text + "kube.api\tforbidden\n", node="master")
    assert "data that kubeadm wrote is lost" in problem.what and "k8sdds destroy mine" in problem.remedy


def test_leftovers_of_another_network_and_ports_in_use() -> None:
    leftovers = "leftover\t/etc/cni/net.d/10-weave.conflist\nlistens\t10250\n"
    lines = [problem.what for problem in problems_of(changed() + leftovers)]
    assert "/etc/cni/net.d/10-weave.conflist" in lines[0] and "port 10250 is in use" in lines[1]
    # The ports of the API server and of metrics-server must be free on the control plane only.
    for port in (6443, 4443):
        assert problems_of(changed() + f"listens\t{port}\n") == []
        assert problems_of(changed() + f"listens\t{port}\n", node="master")
    without = PROFILE + "metrics_server: null\n"
    assert problems_of(changed() + "listens\t4443\n", without, node="master") == []


@pytest.mark.parametrize(("difference_s", "problems"), [(2, 0), (4000, 1), (-4000, 1)])
def test_clocks_must_agree(difference_s: float, problems: int) -> None:
    text = changed()
    epoch = float(re.search(r"^epoch\t(.*)$", text, re.M)[1])  # type: ignore[index]
    both = {
        "master": facts.parse(text, epoch - 0.1, epoch + 0.1),
        "pi1": facts.parse(text, epoch - difference_s - 0.1, epoch - difference_s + 0.1),
    }
    assert len(preflight.check(parsed(), both)) == problems


@pytest.mark.parametrize(
    ("containerd", "version", "problems", "notes"),
    [
        ("1.6.20", "1.36.3", 0, 1),
        ("1.6.20~ds1", "1.37.0", 1, 0),
        ("2.1.4", "1.37.0", 0, 0),
        ("v2.4.2", "1.36.3", 0, 0),
    ],
)
def test_kubernetes_requires_a_recent_containerd(
    containerd: str, version: str, problems: int, notes: int
) -> None:
    profile = parsed(PROFILE + f"kubernetes: {{version: {version}}}\n")
    machines = {"pi1": facts.parse(changed(containerd=containerd, hostname="pi1"))}
    assert len(preflight.check(profile, machines)) == problems
    assert len([line for line in preflight.notes(profile, machines) if "containerd" in line[1]]) == notes


@given(st.text())
def test_parser_accepts_any_text(text: str) -> None:
    result = facts.parse(text, 0.0, 1.0) if "epoch" not in text else facts.parse(text)
    assert isinstance(result, Facts)
    assert all(str(problem) for problem in preflight.check(parsed(), {"pi1": result}))


def test_probe_reads_only_files_that_changed_since_deploy(tmp_path: Path) -> None:
    names = ("untouched", "touched", "replaced", "new")
    paths = {name: tmp_path / name for name in names}
    known = tmp_path / "hashes"
    for name, path in paths.items():
        path.write_text(name)
        if name != "new":
            command = ("stat", "-L", "--format", "%n %i %s %.9Y %.9Z", path)
            line = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            # No file has this hash: if the probe reports it, it did not read the file.
            with known.open("a") as file:
                file.write(f"{line} {name}\n")
    os.utime(paths["touched"])
    times = paths["replaced"].stat()
    paths["replaced"].write_text("another!"[: times.st_size])
    os.utime(paths["replaced"], ns=(times.st_atime_ns, times.st_mtime_ns))
    link = tmp_path / "link"
    link.symlink_to(paths["untouched"])
    files = " ".join(map(str, (*paths.values(), tmp_path / "missing", link)))
    script = f"FILES='{files}'\n" + facts.FILE_HASHES.replace(HASHES, str(known))
    output = subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert facts.parse(output).pairs("file") == {
        str(path): name if name == "untouched" else hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in paths.items()
    }
    assert facts.parse(output).pairs("symlink") == {str(link): str(paths["untouched"])}
    # Before the first deploy, no hashes are known.
    known.unlink()
    output = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=60).stdout
    assert len(facts.parse(output).pairs("file")) == 4


@pytest.mark.parametrize(
    ("failure", "api"),
    [
        ("echo Error from server: Timeout >&2; exit 1", "ready"),
        ("echo Error from server: Forbidden >&2; exit 1", "forbidden"),
        ("echo Warning: v1 Endpoints is deprecated >&2", "ready"),
    ],
)
def test_probe_queries_the_api_server_again_after_a_timeout(tmp_path: Path, failure: str, api: str) -> None:
    # A substitute for kubectl that fails once.
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!/bin/sh\nseen={tmp_path}/seen-${{3%%,*}}\n[ -e $seen ] || {{ : >$seen; {failure}; }}\n"
        'case $3 in nodes) printf "kube.node\\tone True  {}\\n" ;;'
        ' customresourcedefinitions*) printf "kube.definition\\tx.y z \\n" ;; *) printf "kube.object\\tA//b c\\n" ;; esac\n'
    )
    program.chmod(0o755)
    (tmp_path / "sleep").symlink_to("/bin/true")
    script = (
        f'has() {{ :; }}\nsay() {{ printf \'%s\\t%s\\n\' "$1" "$2"; }}\nwork={tmp_path}\n' + facts.CLUSTER
    )
    for path in ("/etc/kubernetes/admin.conf", facts.MARKER):
        script = script.replace(path, str(program))
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, timeout=60, env={"PATH": path}
    )
    result = facts.parse(done.stdout)
    assert result.values["kube.api"] == api, done.stderr
    if api == "ready":
        assert result.all("kube.node") == ("one True  {}",) and result.all("kube.object") == ("A//b c",)
        assert result.all("kube.definition") == ("x.y z",)


@pytest.mark.parametrize(("manager", "is_ours"), [("", False), ("helm", False), ("k8sdds", True)])
def test_a_second_network_is_refused_next_to_multus_of_others(manager: str, is_ours: bool) -> None:
    name = "network-attachment-definitions.k8s.cni.cncf.io"
    fits = changed() + "feature\tmacvlan\n"
    text = fits + f"kube.definition\t{name} {manager} \n"
    with_second = PROFILE + "second_network: macvlan\n"
    assert problems_of(text, PROFILE, "master") == problems_of(fits, with_second, "master") == []
    problems = problems_of(text, with_second, "master")
    assert [problem.what for problem in problems] == (
        [] if is_ours else [f"master: Multus of others is installed (CustomResourceDefinition {name})"]
    )
    assert all(problem.remedy == "remove it, or leave out second_network" for problem in problems)


def test_notes_say_why_an_api_server_does_not_answer() -> None:
    profile = parsed()
    machines = {"master": facts.parse(changed() + "kube.api\tThe connection to the server was refused\n")}
    notes = list(preflight.notes(profile, machines))
    assert ("master", "its API server does not answer: The connection to the server was refused") in notes


def test_what_many_machines_have_in_common_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = [f"w{number:02}" for number in range(1, 50)]
    profile = parsed(
        "name: many\nnodes: [{name: master, roles: [control-plane]}, " + ", ".join(
            f"{{name: {name}}}" for name in workers
        ) + "]\n"
    )  # fmt: skip
    swap = {"cgroup": "1", "swap_kib": "4096"}
    texts = {name: changed(hostname="raspberrypi", **swap) + f"resolves\t{name}\n" for name in workers}
    texts |= {"master": changed(hostname="master", cgroup="1")}
    machines = {name: facts.parse(text) for name, text in texts.items()}
    monkeypatch.setattr(facts, "gather", lambda *_: (machines, {}))
    survey = deploy.survey(profile, cast(Connections, None))
    names = ", ".join(workers)
    assert survey.notes == [
        "all 50 nodes: cgroup v1: the kubelet is configured to start on it (--fail-cgroupv1=false)",
        f"49 nodes ({names}): the host name differs from the name in the profile; Kubernetes uses the name in the profile",
    ]
    (problem,) = survey.problems
    assert problem.what == f"49 nodes ({names}): has 4 MiB of swap, which the kubelet refuses"


def test_json_of_facts_has_no_hashes_of_files() -> None:
    machine = facts.parse(changed() + f"file\t{registry.HOSTS_FILE} 5e884898da28\n")
    assert machine.to_json().keys() == {"one", "many", "clock_ahead_s", "clock_error_s"}
    assert machine.pairs("file")[registry.HOSTS_FILE] == "5e884898da28"
    assert "5e884898da28" not in json.dumps(machine.to_json()) and machine.to_json()["many"]["address"]


def test_the_probe_of_kernel_features_is_one_quoted_script() -> None:
    """A single quote inside would end it, and all features after it would count as missing."""
    inner = facts.probe_script().partition("unshare --net sh -c '")[2].partition("\n'\n")[0]
    assert "try xt_set" in inner and "'" not in inner
