"""A middleware that is not built is reported with the reason that CMake recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from k8sdds.bundle import native
from k8sdds.cli import machine
from k8sdds.middleware import ALWAYS_BUILT, MIDDLEWARES
from k8sdds.setup import native as setup_native
from k8sdds.system import paths
from k8sdds.system.errors import PrerequisiteError

REASON = "not built: CMake found neither fastdds 3 nor fastrtps 2 (Debian: libfastdds-dev)"


@pytest.fixture
def without_fastdds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of native programs as the build leaves it without Fast DDS."""
    for name in setup_native.PROGRAMS:
        (tmp_path / name).touch(0o755)
    for name in ("raw", "cyclonedds"):
        (tmp_path / f"libk8sdds-perftest-{name}.so").touch()
    record = {"raw": "UDP sockets", "cyclonedds": "Cyclone DDS 0.10.2", "fastdds": REASON}
    (tmp_path / "middlewares.json").write_text(json.dumps(record))
    monkeypatch.setenv("K8SDDS_LIBEXEC", str(tmp_path))
    return tmp_path


def test_setup_builds_only_backends(without_fastdds: Path) -> None:
    assert setup_native.missing_middlewares() == ["fastdds"]
    (without_fastdds / "libk8sdds-perftest-fastdds.so").touch()
    assert setup_native.missing_middlewares() == []


@pytest.mark.parametrize("backend", ["zenoh", "ros2-fastdds"])
def test_some_backends_are_built_only_on_request(without_fastdds: Path, backend: str) -> None:
    assert setup_native.missing_middlewares() == ["fastdds"]
    assert setup_native.missing_middlewares([backend]) == ["fastdds", backend]
    (without_fastdds / f"libk8sdds-perftest-{backend}.so").touch()
    assert setup_native.missing_middlewares([backend]) == ["fastdds"]


def test_a_build_in_the_cache_keeps_what_was_requested_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[set[str]] = []

    def build(_folder: Path, prefix: Path, *more: object) -> None:
        options = more[2]
        assert isinstance(options, dict)
        requests.append({name for name, value in options.items() if value == "ON"})
        libexec = prefix / "libexec" / "k8sdds"
        libexec.mkdir(parents=True)
        for name in setup_native.PROGRAMS:
            (libexec / name).touch(0o755)
        for name, option in setup_native.BACKENDS.items():
            if not option or option in options:
                (libexec / f"libk8sdds-perftest-{name}.so").touch()

    monkeypatch.setattr(setup_native, "CHECKOUT", None)
    monkeypatch.setattr(paths, "CHECKOUT", None)
    monkeypatch.setattr(setup_native.native_build, "build", build)
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("K8SDDS_LIBEXEC", raising=False)
    for requested in (["ros2-fastdds"], ["zenoh"]):
        setup_native.build(lambda _line: None, lambda _line: None, requested=requested)
    assert requests == [{"K8SDDS_ROS2"}, {"K8SDDS_ROS2", "K8SDDS_ZENOH"}]


def test_images_do_not_contain_what_the_lab_only_has(
    without_fastdds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SERVER", "true")
    modules = {"libk8sdds-perftest-fastdds.so", "libk8sdds-perftest-mine.so"}
    lab_only = "libk8sdds-perftest-ros2-fastdds.so"
    for name in (*modules, lab_only, "k8sdds-transactions", "discovery-server"):
        (without_fastdds / name).touch(0o755)
    names = {Path(target).name for target in native.programs("perftest", native.HOST_ARCH, print)}
    assert modules <= names and lab_only not in names


def test_images_have_the_router_if_it_is_built(
    without_fastdds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SERVER", "true")
    for name in ("libk8sdds-perftest-fastdds.so", "k8sdds-transactions", "discovery-server"):
        (without_fastdds / name).touch(0o755)
    built = {"libk8sdds-perftest-zenoh.so", "zenohd", "zenoh-licenses.txt"}
    for expected in (set(), built):
        for name in expected:
            (without_fastdds / name).touch(0o755)
        images = {
            group: {Path(target).name for target in native.programs(group, native.HOST_ARCH, print)}
            for group in ("perftest", "discovery")
        }
        assert images["perftest"] & built == expected - {"zenohd"}
        assert images["discovery"] & built == expected - {"libk8sdds-perftest-zenoh.so"}


@pytest.mark.parametrize(
    ("programs", "owner", "library"),
    [
        (("rustc", "dpkg-query"), "rustc-web: /usr/bin/rustc", "libstd-rust-web-dev"),
        (("rustc", "dpkg-query"), "rustc: /usr/bin/rustc", "libstd-rust-dev"),
        # That of rustup. dpkg-query prints a message on stderr.
        (("rustc", "dpkg-query"), "", None),
        (("dpkg-query",), "rustc: /usr/bin/rustc", None),
    ],
)
def test_debian_has_the_standard_library_for_its_own_compiler(
    programs: tuple[str, ...],
    owner: str,
    library: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for program in programs:
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{owner}'\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native._rust_library() == library


class CrossBuild:
    """Stands for the tools of a build for another architecture, and records which CMake settings it requests."""

    OTHER = "amd64" if native.HOST_ARCH == "arm64" else "arm64"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.requests: list[str] = []
        self.notes: list[str] = []
        self.failures: dict[str, str] = {}
        """Messages of what fails: `sysroot` (that of Rust) or `build` (that of Zenoh)."""
        compiler = folder / f"{native.TRIPLETS[self.OTHER]}-g++"
        compiler.write_text("#!/bin/sh\necho g++\n")
        compiler.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        monkeypatch.setenv("K8SDDS_CACHE_DIR", str(folder / "cache"))
        monkeypatch.setattr(native.debian_release, "running", lambda _what: None)
        monkeypatch.setattr(native.debian, "sysroot", self.sysroot)
        monkeypatch.setattr(native, "_rust_library", lambda: "libstd-rust-dev")
        monkeypatch.setattr(native.cmake, "build", self.build)

    def sysroot(self, _release: object, _arch: str, packages: tuple[str, ...], _report: object) -> Path:
        if packages == ("libstd-rust-dev",) and "sysroot" in self.failures:
            raise PrerequisiteError(self.failures["sysroot"], "see the log")
        return self.folder / f"sysroot-{packages[0]}"

    def build(
        self, _what: str, _sources: Path, _folder: Path, _log: Path, settings: dict[str, Path], *_: object
    ) -> None:
        self.requests.append(str(settings["K8SDDS_ZENOH"]))
        zenoh = self.requests[-1] == "ON"
        if zenoh and "build" in self.failures:
            raise PrerequisiteError(self.failures["build"], "see the log")
        libexec = Path(settings["CMAKE_INSTALL_PREFIX"], "libexec/k8sdds")
        libexec.mkdir(parents=True)
        for name in ALWAYS_BUILT:
            (libexec / f"libk8sdds-perftest-{name}.so").touch()
        (libexec / "middlewares.json").write_text(json.dumps({"zenoh": self.failures.get("record", "Zenoh")}))
        if zenoh and "record" not in self.failures:
            (libexec / "zenohd").touch(0o755)

    def run(self) -> bool:
        """Return whether the programs include Zenoh."""
        libexec, _ = native.cross_compiled(self.OTHER, self.notes.append)
        return (libexec / "zenohd").is_file()


@pytest.fixture
def cross_build(
    without_fastdds: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> CrossBuild:
    (without_fastdds / "zenohd").touch(0o755)
    return CrossBuild(tmp_path_factory.mktemp("cross"), monkeypatch)


def test_other_architectures_get_zenoh_if_this_machine_has_it(
    cross_build: CrossBuild, without_fastdds: Path
) -> None:
    assert cross_build.run() and cross_build.run()
    assert cross_build.requests == ["ON"]  # the second is from the cache
    (without_fastdds / "zenohd").unlink()
    assert not cross_build.run() and not cross_build.run()
    assert cross_build.requests == ["ON", "OFF"]
    (note,) = [line for line in cross_build.notes if "Zenoh" in line]
    assert note.endswith("it is not built on this machine (run: k8sdds setup --for lab-zenoh)")


@pytest.mark.parametrize(
    ("failure", "requests"), [("sysroot", ["OFF"]), ("build", ["ON", "OFF"]), ("record", ["ON"])]
)
def test_other_architectures_are_built_although_zenoh_fails(
    cross_build: CrossBuild, failure: str, requests: list[str]
) -> None:
    cross_build.failures = {failure: "there is no network"}
    assert not cross_build.run() and not cross_build.run()
    assert cross_build.requests == requests
    (note,) = [line for line in cross_build.notes if "Zenoh" in line]
    remedy = "" if failure == "record" else " (see the log)"
    assert note == f"without Zenoh for {cross_build.OTHER}: there is no network{remedy}"
    # A later command, with a network or another compiler, builds it.
    cross_build.failures = {}
    native._without_zenoh.clear()
    for program in ("rustc", "cargo"):
        (cross_build.folder / program).write_text("#!/bin/sh\necho 1.99.0\n")
        (cross_build.folder / program).chmod(0o755)
    assert cross_build.run()


def test_other_errors_are_not_hidden(cross_build: CrossBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PrerequisiteError("main.cpp does not compile")

    monkeypatch.setattr(native.cmake, "build", fail)
    with pytest.raises(PrerequisiteError, match=r"main\.cpp does not compile"):
        cross_build.run()


def test_doctor_lists_each_middleware(without_fastdds: Path) -> None:
    found = {row["subject"].removeprefix("middleware "): row for row in machine._middlewares(without_fastdds)}
    assert list(found) == list(MIDDLEWARES)
    assert (found["cyclonedds"]["ok"], found["cyclonedds"]["says"]) == (True, "Cyclone DDS 0.10.2")
    assert not found["fastdds"]["ok"]
    assert found["fastdds"]["says"] == f"middleware 'fastdds' is {REASON}"
    assert found["fastdds"]["remedy"]
    assert not found["fastdds"]["needed"]
    assert found["cyclonedds"]["needed"]


def test_images_are_refused_without_a_middleware(
    without_fastdds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SERVER", "true")
    with pytest.raises(PrerequisiteError, match="every middleware, but fastdds is not built: CMake found"):
        native.programs("perftest", native.HOST_ARCH, print)


@pytest.mark.parametrize("record", [None, "", '{"raw": "UDP'])
def test_programs_without_a_complete_record_are_accepted(without_fastdds: Path, record: str | None) -> None:
    (without_fastdds / "middlewares.json").unlink()
    if record is not None:
        (without_fastdds / "middlewares.json").write_text(record)
    found = {row["subject"]: row for row in machine._middlewares(without_fastdds)}
    assert found["middleware cyclonedds"]["ok"]
    expected = "middleware 'fastdds' is not built here (built: cyclonedds, raw)"
    assert found["middleware fastdds"]["says"] == expected
