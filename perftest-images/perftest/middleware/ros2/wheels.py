"""Get ROS 2 from its wheels: the headers, and one folder with all libraries that the backend loads.

CMake runs it with an interpreter that has pip: wheels.py FOLDER LIBRARIES COMPILER
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PLATFORM = (
    "--platform",
    "manylinux_2_28_x86_64",
    "--implementation",
    "cp",
    "--python-version",
    "311",
    "--abi",
    "cp311",
)
"""The wheels are the same whatever the version of this interpreter: their extension modules are not used."""
ATTEMPTS = 2
"""pip repeats requests that fail itself, but not always a transfer that breaks."""
ROOTS = (
    "librcl.so",
    "librmw_fastrtps_cpp.so",
    # The types of messages. Those for Fast DDS, and for introspection, are loaded by name.
    *(
        f"lib{package}__rosidl_typesupport_{kind}.so"
        for package in ("rmw_dds_common", "sensor_msgs", "std_msgs")
        for kind in ("cpp", "fastrtps_cpp", "introspection_cpp")
    ),
)
PYTHON_LIBRARY = "__rosidl_generator_py.so"
"""End of the names of libraries that librcl names as dependencies, without using them, and that need a Python."""


def download(folder: Path) -> None:
    """Download the wheels, whose hashes pip verifies, into a folder."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
        "--requirement",
        str(REQUIREMENTS),
    ]
    for _ in range(ATTEMPTS):
        done = subprocess.run([*pip, *PLATFORM, *options], stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            return
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    sys.exit(
        f"pip cannot download the wheels of ROS 2: {(lines or ['no message'])[-1]};"
        " check the network and the proxy (https_proxy) of this machine, and run the command again"
    )


def extract(wheels: Path, headers: Path) -> dict[str, tuple[Path, str]]:
    """Extract the headers. Returns the wheel, and the path in it, of each library by its name."""
    libraries: dict[str, tuple[Path, str]] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                _, found, header = name.partition(".data/data/include/")
                if found and header and not name.endswith("/"):
                    target = headers / header
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))
                elif ".data/data/lib/lib" in name or ".libs/" in name:
                    libraries.setdefault(Path(name).name, (wheel, name))
    return libraries


def needed(library: Path) -> list[str]:
    """Return the names of the libraries that a library needs."""
    shown = subprocess.run(
        ["readelf", "--dynamic", "--wide", library], check=True, capture_output=True, text=True
    )
    return [line.split("[")[1].rstrip("]") for line in shown.stdout.splitlines() if "(NEEDED)" in line]


def gather(libraries: dict[str, tuple[Path, str]], folder: Path, compiler: str) -> None:
    """Write the roots and all that they need into a folder, with empty libraries for those that need a Python.

    What no wheel contains is a library of the system.
    """
    folder.mkdir(parents=True)
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        target = folder / name
        if target.exists() or name not in libraries:
            continue
        if name.endswith(PYTHON_LIBRARY):
            empty = ["-shared", "-nostdlib", f"-Wl,-soname,{name}", "-x", "c", "/dev/null", "-o", str(target)]
            subprocess.run([compiler, *empty], check=True)
            continue
        wheel, path = libraries[name]
        with zipfile.ZipFile(wheel) as archive:
            target.write_bytes(archive.read(path))
        waiting += needed(target)


def main(folder: Path, libraries: Path, compiler: str) -> None:
    """Replace the headers and the folder of libraries. What exists is kept if the download fails."""
    headers = folder / "include"
    with tempfile.TemporaryDirectory() as wheels:
        download(Path(wheels))
        for old in (headers, libraries):
            shutil.rmtree(old, ignore_errors=True)
        gather(extract(Path(wheels), headers), libraries, compiler)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
