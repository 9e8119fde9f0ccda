"""`k8sdds setup` finds what is missing on this machine, and says what an ordinary user can do about it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from k8sdds import networks, setup
from k8sdds.bundle import native as native_bundle
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.cli import docs
from k8sdds.middleware import ALWAYS_BUILT, k8sdds_perftest
from k8sdds.setup import native, packages, prepare, root
from k8sdds.system import kernel_features, paths
from k8sdds.system.errors import PrerequisiteError
from k8sdds.versions import BUNDLE_ARCHITECTURES
from tests.conftest import NOBODY

ROOT = Path(__file__).parents[2]
NOWHERE = "k8sdds-no-such-package"


def test_the_lab_gets_the_programs_of_every_feature_and_library() -> None:
    needed = {name for feature in networks.features() for name in feature.package.split()}
    # The compiler of BPF programs is large, and only some networks need it.
    assert needed - set(packages.LAB) == {"clang"}
    assert needed <= set(packages.LAB_CILIUM) and needed <= set(packages.TESTS)
    assert kernel_features.remedy(kernel_features.CLANG) == "run: k8sdds setup --for lab-cilium"
    assert setup.PURPOSES["lab-cilium"].packages == packages.LAB_CILIUM
    assert {*packages.TOOLS.values(), "kmod"} <= set(packages.LAB)  # kmod: a plan may load modules


def test_other_architectures_get_a_cross_compiler() -> None:
    for arch in BUNDLE_ARCHITECTURES:
        compilers = {name for name in setup.PURPOSES[f"deploy-{arch}"].packages if name.startswith("g++-")}
        assert len(compilers) == (arch != HOST_ARCH)
        assert {"skopeo", "mmdebstrap"} <= set(setup.PURPOSES[f"deploy-{arch}"].packages)
    assert "g++-aarch64-linux-gnu" in packages.TESTS or HOST_ARCH == "arm64"


needs_apt = pytest.mark.skipif(not shutil.which("apt-get"), reason="this system has no Debian packages")


@needs_apt
def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages.missing(["dpkg", NOWHERE, "apt"]) == [NOWHERE]
    monkeypatch.setitem(packages.RENAMED, NOWHERE, "dpkg")
    assert packages.missing([NOWHERE]) == []


def test_only_some_purposes_need_more_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    with_compiler = {name for name, purpose in setup.PURPOSES.items() if "cargo-web" in purpose.packages}
    assert with_compiler == {"lab-zenoh", "tests"}
    assert with_compiler == {name for name, purpose in setup.PURPOSES.items() if "zenoh" in purpose.backends}
    assert {name for name, purpose in setup.PURPOSES.items() if purpose.tests} == {"tests"}
    asked = []
    monkeypatch.setattr(packages, "missing", lambda _names: [])
    monkeypatch.setattr(native, "is_current", lambda *request: bool(asked.append(request)))
    ros2 = ("ros2-fastdds", "ros2-fastdds-plain")
    of_tests = ("zenoh", *ros2) if HOST_ARCH == "amd64" else ("zenoh",)  # there are no other wheels
    backends = {"lab": (), "lab-zenoh": ("zenoh",), "lab-ros2": ros2, "tests": of_tests}
    plans = [setup.plan([setup.PURPOSES[name]]) for name in backends]
    assert asked == [(name == "tests", requested) for name, requested in backends.items()]
    assert [(plan.build, plan.requested) for plan in plans] == [(True, each) for each in backends.values()]
    assert setup.plan([setup.PURPOSES["lab-zenoh"], setup.PURPOSES["tests"]]).requested == of_tests


def test_setup_refuses_what_the_programs_of_a_wheel_do_not_include(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are never built again, so that setup would report success without doing anything."""
    for module in (paths, prepare, k8sdds_perftest):
        monkeypatch.setattr(module, "BUNDLED", tmp_path)
    monkeypatch.delenv("K8SDDS_LIBEXEC", raising=False)
    monkeypatch.setattr(packages, "missing", lambda _names: [])
    for name in (*native.PROGRAMS, *(f"libk8sdds-perftest-{name}.so" for name in ALWAYS_BUILT)):
        (tmp_path / name).touch(0o755)
    assert not setup.plan([setup.PURPOSES["lab"]]).packages
    with pytest.raises(PrerequisiteError, match="this installation do not include zenoh") as error:
        setup.plan([setup.PURPOSES["lab-zenoh"]])
    assert error.value.remedy == "install k8sdds from its sources"
    (tmp_path / "libk8sdds-perftest-zenoh.so").touch()
    monkeypatch.setattr(native, "CHECKOUT", None)
    assert not setup.plan([setup.PURPOSES["lab-zenoh"]]).build


@needs_apt
def test_any_cargo_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Such as that of rustup, whose folder is in PATH."""
    for program in packages.BUILD_ZENOH.values():
        (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert packages.missing([*packages.BUILD_ZENOH, NOWHERE]) == [NOWHERE]


@needs_apt
def test_without_root_the_message_has_the_command_for_the_administrator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(root, "is_available", lambda: False)
    notes: list[str] = []
    with pytest.raises(PrerequisiteError, match=f"without root: {NOWHERE}") as error:
        setup.apply(setup.Plan(packages=(NOWHERE,), modules=("esp4",)), notes.append)
    assert f"apt-get install {NOWHERE}" in error.value.remedy
    assert "report" in error.value.remedy
    assert len(notes) == 1 and "esp4" in notes[0]


def test_without_apt_the_message_lists_the_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="apt-get is not installed") as error:
        setup.plan([setup.PURPOSES["lab"]])
    assert "cyclonedds-dev" in error.value.remedy
    assert not native.can_build()


@needs_apt
def test_packages_are_found_under_the_names_of_this_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packages.RENAMED, "k8sdds-former-name", "dpkg")
    found = packages.available_names([NOWHERE, "k8sdds-former-name", "apt"])
    assert found == {"k8sdds-former-name": "dpkg", "apt": "apt"}


class Apt:
    """Stands for apt-get, which fails with these messages, one call after the other, and then succeeds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failures: str, code: int = 100) -> None:
        self.failures, self.code, self.actions = list(failures), code, list[str]()
        monkeypatch.setattr(root, "is_available", lambda: True)
        monkeypatch.setattr(packages, "as_root", self.run)
        monkeypatch.setattr(packages, "LOCK_POLL_S", 0)

    def run(self, *argv: str, text: str | None = None, output: IO[str] | None = None) -> int:
        if output is None or "apt-get" not in argv:
            return 0
        self.actions += [word for word in argv if word in ("update", "install")]
        if not self.failures:
            return 0
        output.write(self.failures.pop(0))
        return self.code


@needs_apt
def test_without_sudo_rights_the_message_names_an_alternative(monkeypatch: pytest.MonkeyPatch) -> None:
    Apt(monkeypatch, "sudo: a password is required\n", code=1)
    with pytest.raises(PrerequisiteError, match=r"(?s)apt-get update failed.*password is required") as error:
        setup.apply(setup.Plan(packages=(NOWHERE,)), lambda line: None)
    assert "administrator" in error.value.remedy


@needs_apt
def test_another_apt_is_awaited_and_a_failed_download_is_repeated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locked = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n"
    failed = "Fetched 3 MB\nE: Failed to fetch http://deb/x.deb  Hash Sum mismatch\n"
    apt = Apt(monkeypatch, locked, locked, failed)
    notes: list[str] = []
    packages.update(notes.append)
    assert apt.actions == ["update"] * 4
    assert [note for note in notes if "waiting" in note] and "once more" in notes[-1]
    apt = Apt(monkeypatch, failed, failed, failed)
    with pytest.raises(PrerequisiteError, match=r"(?s)install failed.*Hash Sum mismatch") as error:
        packages.install(["dpkg"], notes.append)
    assert apt.actions == ["install"] * 2 and "Fetched" not in str(error.value)


def test_programs_are_built_while_other_packages_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    built = threading.Event()
    installed = []

    def install(names: list[str], _report: object) -> None:
        installed.append(names)
        # The build begins before the other packages are there.
        assert "g++" in names or built.wait(60)

    monkeypatch.setattr(root, "is_available", lambda: True)
    monkeypatch.setattr(packages, "update", lambda _report: None)
    monkeypatch.setattr(packages, "install", install)
    monkeypatch.setattr(packages, "missing", lambda _names: [])
    monkeypatch.setattr(native, "build", lambda *_: built.set())
    setup.apply(setup.Plan(("iperf3", "g++", "cargo-web"), build=True), lambda line: None)
    assert installed == [["g++", "cargo-web"], ["iperf3"]] and built.is_set()


def test_a_command_that_does_not_read_its_input_reports_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\nexec <&-\nexit 1\n")
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert root.as_root("install", "-m", "755", "/dev/stdin", "/nowhere", text="x" * 1_000_000) == 1


def test_a_plan_lists_every_change() -> None:
    lines = setup.Plan(("a", "b"), ("vxlan",), build=True).describe()
    assert [line for line in lines if "a, b" in line] and [line for line in lines if "vxlan" in line]
    assert str(paths.built_folder()) in lines[-1]
    assert setup.Plan().describe() == []


def test_programs_are_built_again_when_their_sources_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "_ROOT", tmp_path)
    source = tmp_path / "perftest-images" / "main.cpp"
    source.parent.mkdir()
    keys = set()
    for text in ("one", "two", "one"):
        source.write_text(text)
        keys.add(paths._native_key.__wrapped__())
    assert len(keys) == 2


def test_make_builds_the_programs_before_packages_of_python_are_installed(tmp_path: Path) -> None:
    """The compilers report why: they run, from a copy of the source tree whose sources do not compile."""
    shutil.copytree(ROOT / "k8sdds", tmp_path / "k8sdds")
    (tmp_path / "perftest-images").mkdir()
    (tmp_path / "perftest-images" / "CMakeLists.txt").write_text('message(FATAL_ERROR "no sources")\n')
    # -S: without the folder of installed packages.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "k8sdds.system.native_build"], cwd=tmp_path, env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    if shutil.which("cmake"):
        assert "no sources" in (tmp_path / "build" / "native" / "build.log").read_text()


def created(program: Path) -> str:
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    return str(program)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let k8sdds be installed without its sources; return the folder of the installation."""
    prefix = tmp_path / "installation"
    prefix.mkdir()
    monkeypatch.setattr(paths, "CHECKOUT", None)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.delenv("K8SDDS_LIBEXEC", raising=False)
    return prefix


def test_root_uses_what_the_owner_of_the_installation_built(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    if os.geteuid() == 0:
        os.chown(installed, NOBODY, NOBODY)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: SimpleNamespace(pw_dir=str(home)))
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache of root"))
    owned = created(home / ".cache/k8sdds/libexec" / paths.built_folder().name / "k8sdds-perftest")
    assert paths.native_program("k8sdds-perftest") == owned
    own = created(paths.built_folder() / "k8sdds-perftest")
    assert paths.native_program("k8sdds-perftest") == own


def test_programs_of_a_distribution_need_no_cache(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", "/proc/no-such-folder")
    program = created(installed / "libexec" / "k8sdds" / "k8sdds-perftest")
    assert paths.native_program("k8sdds-perftest") == program


def test_the_programs_of_a_wheel_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Images need others, because those of a wheel use the libraries next to them."""
    assert not native_bundle._is_cross_compiled(HOST_ARCH)
    for module in (paths, native_bundle):
        monkeypatch.setattr(module, "BUNDLED", tmp_path)
    monkeypatch.delenv("K8SDDS_LIBEXEC", raising=False)
    (tmp_path / "k8sdds-perftest").touch(0o755)
    assert paths.native_program("k8sdds-perftest") == str(tmp_path / "k8sdds-perftest")
    assert native_bundle._is_cross_compiled(HOST_ARCH)


def test_messages_name_topics_of_the_documentation_that_exist() -> None:
    texts = "\n".join(path.read_text() for path in (ROOT / "k8sdds").rglob("*.py"))
    named = {*re.findall(r"k8sdds docs ([a-z0-9][\w/-]*)", texts), *re.findall(r'page: Cl.* = "(.+)"', texts)}
    assert len(named) > 8
    assert named <= docs.topics().keys()
    for topic, page in docs.topics().items():
        assert topic.rpartition("/")[2] == page.stem


def test_messages_name_no_command_of_the_source_tree() -> None:
    named = [
        f"{path.name}: {line}"
        for path in (ROOT / "k8sdds").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"\bmake (setup|run|test)\b|perftest-images/\w+/", line)
        and '"' in line
        and "CHECKOUT" not in line
    ]
    assert named == []
