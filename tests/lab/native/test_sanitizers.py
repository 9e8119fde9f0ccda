"""Test the native programs with sanitizers: the protocol and supervisor tests and the fuzz targets report nothing."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from fuzzing import REPOSITORY, SOURCES, TARGETS, fuzz

from k8sdds.system import cmake

pytestmark = pytest.mark.long

LAB = REPOSITORY / "tests/lab"
PROTOCOL = [
    LAB / "perftest" / f"test_{name}.py"
    for name in (
        "complete_runs",
        "foreign",
        "instances",
        "paced",
        "peer_loss",
        "scan",
        "serialized",
        "writers",
    )
]
FIXED_ADDRESSES = ("setarch", platform.machine(), "-R")
"""The sanitizers of older compilers do not know the memory layout of newer kernels with random addresses."""


def build(name: str, sanitizers: str, target: str = "install", **more: str) -> Path:
    """Build both programs and the fuzz targets; return the folder of the build."""
    folder = REPOSITORY / "build" / f"native-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"K8SDDS_SANITIZE": sanitizers, "CMAKE_INSTALL_PREFIX": folder / "install", **more}
    cmake.build(
        f"the programs with {name}", SOURCES, folder, folder / "build.log", settings, target, "make setup"
    )
    return folder


def run_tests(folder: Path, reports: Path, options: dict[str, str], *tests: object) -> None:
    """Run tests with the programs of a build and fail if one of them fails or a sanitizer reports something."""
    env = {**os.environ, "K8SDDS_LIBEXEC": str(folder / "install/libexec/k8sdds")}
    env |= {name: f"log_path={reports / 'report'}:{value}" for name, value in options.items()}
    argv = [
        *FIXED_ADDRESSES,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *map(str, tests),
    ]
    done = subprocess.run(argv, env=env, cwd=REPOSITORY, capture_output=True, text=True)
    found = "\n".join(path.read_text() for path in sorted(reports.iterdir()))
    assert not found, found[:5000]
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.fixture(scope="module")
def address() -> Path:
    return build("address", "address,undefined")


@pytest.fixture(scope="module")
def thread() -> Path:
    return build("thread", "thread")


@pytest.fixture(scope="module")
def libfuzzer() -> Path:
    clang = {"CMAKE_CXX_COMPILER": "clang++", "CMAKE_C_COMPILER": "clang", "K8SDDS_LIBFUZZER": "ON"}
    return build("libfuzzer", "fuzzer-no-link,address,undefined", target="fuzz", **clang)


ADDRESS = {"ASAN_OPTIONS": "detect_leaks=0:new_delete_type_mismatch=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
"""Fast DDS 2.9 deletes its readers with the size of a base class, which is a report about the library."""


def test_protocol_without_errors_of_memory(address, tmp_path):
    run_tests(address, tmp_path, ADDRESS, *PROTOCOL)


def test_supervisor_without_errors_of_memory(address, tmp_path):
    run_tests(address, tmp_path, ADDRESS, LAB / "supervisor")


@pytest.mark.parametrize("target", TARGETS)
def test_readers_without_errors_of_memory(address, target):
    fuzz(address, target, runs=20_000, seed=3, within=FIXED_ADDRESSES)


@pytest.mark.parametrize("target", TARGETS)
def test_readers_with_inputs_that_reach_more_code(libfuzzer, tmp_path, target):
    found = tmp_path / "found"
    found.mkdir()
    [program] = libfuzzer.glob(f"**/k8sdds-fuzz-{target}")
    limits = ["-runs=20000", "-seed=4", "-timeout=10", "-rss_limit_mb=2048", f"-artifact_prefix={tmp_path}/"]
    argv = [*FIXED_ADDRESSES, program, *limits, found, TARGETS[target]]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-3000:]


def test_protocol_without_data_races(thread, tmp_path):
    suppressions = Path(__file__).with_name("thread-suppressions.txt")
    options = {"TSAN_OPTIONS": f"suppressions={suppressions}:second_deadlock_stack=1"}
    run_tests(thread, tmp_path, options, *PROTOCOL)
