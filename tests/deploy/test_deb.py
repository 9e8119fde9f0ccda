"""The Debian packages, built and installed in a minimal system of this machine's release, work and can be removed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds.system import debian_release

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="a chroot needs root")]
CHECKOUT = Path(__file__).parents[2]
TIMEOUT_S = 1800
INSIDE = (Path(__file__).parent / "scripts/inside.sh").read_text()


class Machine:
    """A minimal system in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *argv: str, code: int = 0) -> str:
        """Run a command in the system, as root and without this machine's variables; return its output."""
        sandbox = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", INSIDE, "sh"]
        done = subprocess.run(
            [*sandbox, str(self.root), *argv], capture_output=True, text=True, timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def apt(self, *argv: str) -> str:
        return self.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q=2", "--yes", *argv)

    def files(self) -> set[str]:
        """Return the paths whose name contains k8sdds."""
        found = self.run("find", "/", "-xdev", "-name", "*k8sdds*", "-not", "-path", "/debs*")
        return set(found.splitlines())


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("debs")
    done = subprocess.run(
        [CHECKOUT / "scripts/build-deb", folder], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    for middleware in ("raw", "cyclonedds", "fastdds", "zenoh"):
        assert f"middleware {middleware}: " in done.stdout
    return sorted(folder.glob("*.deb"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Create a minimal system of this machine's release."""
    root = tmp_path_factory.mktemp("machine") / "root"
    suite = debian_release.running("packages").codename
    argv = ["mmdebstrap", "--mode=root", "--variant=minbase", "--skip=cleanup/apt", suite, str(root)]
    subprocess.run(argv, check=True, capture_output=True, timeout=TIMEOUT_S)
    # The system runs on this machine's kernel, so it does not install one that contains a recommended module.
    (root / "etc/apt/preferences.d/no-kernel").write_text(
        "Package: linux-image-*\nPin: release *\nPin-Priority: -1\n"
    )
    yield Machine(root)
    subprocess.run(["rm", "-rf", "--one-file-system", str(root)], check=True)


def test_packages_install_run_and_leave_nothing_behind(debs: list[Path], machine: Machine) -> None:
    assert {path.name.partition("_")[0] for path in debs} == {"k8sdds", "k8sdds-perftest"}
    (machine.root / "debs").mkdir()
    for path in debs:
        (machine.root / "debs" / path.name).write_bytes(path.read_bytes())

    machine.apt("install", *(f"/debs/{path.name}" for path in debs))
    assert machine.run("k8sdds", "--version").startswith("k8sdds ")
    assert "multicast-12sub" in {row["name"] for row in json.loads(machine.run("k8sdds", "list", "--json"))}
    assert "/usr/libexec/k8sdds/k8sdds-perftest" in os.path.realpath(
        f"{machine.root}/usr/lib/k8sdds/libexec/k8sdds/k8sdds-perftest"
    )
    assert json.loads(machine.run("k8sdds", "show", "quickstart", "--json"))["cells"]
    found = {row["subject"]: row for row in json.loads(machine.run("k8sdds", "doctor", "--json"))}
    for middleware in ("cyclonedds", "fastdds"):
        assert found[f"middleware {middleware}"]["ok"], found

    # One real measurement: the packages contain and depend on all that the lab needs.
    small = ("--repeat", "1", "--duration", "1", "--network", "host", "--output", "/root/results")
    machine.run("k8sdds", "run", "quickstart", *small)
    records = (machine.root / "root/results/trials.jsonl").read_text().splitlines()
    assert records
    assert all(json.loads(record)["valid"] for record in records)

    (machine.root / "root/results").rename(machine.root / "results")
    machine.apt("purge", "k8sdds", "k8sdds-perftest")
    assert {path for path in machine.files() if not path.startswith(("/results", "/var/log"))} == set()
