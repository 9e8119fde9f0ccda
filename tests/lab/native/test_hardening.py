"""Test that the native programs are built with protection against memory errors."""

import subprocess
from pathlib import Path

import pytest
from fuzzing import REPOSITORY

from k8sdds.setup.native import PROGRAMS
from k8sdds.system.paths import native_program

FOLDER = Path(native_program("k8sdds-perftest")).parent
FILES = [*map(native_program, PROGRAMS), *FOLDER.glob("lib*.so")]
SUPERVISOR = REPOSITORY / "build/native/supervisor/libsupervisor_core.a"
"""The supervisor's own code: the program also contains the C library, which is protected in any case."""


def readelf(option: str, file: object) -> str:
    return subprocess.run(
        ["readelf", "--wide", option, file], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file).name)
def test_addresses_are_random_and_relocations_read_only(file):
    assert "DYN (" in readelf("--file-header", file)  # position-independent
    segments = readelf("--program-headers", file)
    assert "GNU_RELRO" in segments
    stack = next(line for line in segments.splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack
    dynamic = readelf("--dynamic", file)
    assert "BIND_NOW" in dynamic or "NOW" in dynamic.split("FLAGS_1", 1)[-1].splitlines()[0]


@pytest.mark.parametrize("file", [*FILES, SUPERVISOR], ids=lambda file: Path(file).name)
def test_the_stack_is_protected(file):
    assert "__stack_chk_fail" in readelf("--symbols", file)


def test_functions_of_the_c_library_check_their_buffers():
    assert "_chk@" in readelf("--dyn-syms", native_program("k8sdds-perftest"))
    assert "printf_chk" in readelf("--symbols", SUPERVISOR)
