"""Create bundles for both architectures on a machine of one of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from k8sdds.bundle import Bundle, architecture, emulation, images, native
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import cache_folder
from k8sdds.versions import BUNDLE_ARCHITECTURES
from k8sdds.versions import DEBIAN_SUITE as SUITE
from tests.conftest import Command

OTHER = "amd64" if HOST_ARCH == "arm64" else "arm64"


def programs(made: Bundle, image: str, arch: str) -> dict[str, str]:
    """Return the architectures of the programs and libraries of an image, by path."""
    (item,) = images.select(made, arch, [image])
    found = {}
    for layer in json.loads(made.file(item).read_text())["layers"]:
        with tarfile.open(made.folder / "oci/blobs/sha256" / layer["digest"][7:]) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                machine = architecture.of_program(content.read(20)) if content else None
                if machine:
                    found[f"/{member.name}"] = machine
    return found


@pytest.mark.long
def test_a_bundle_for_both_architectures_is_created_verified_and_listed(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command's user has another home; what takes long to make is here.
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(cache_folder()))
    words = ("bundle", "create", "both", "--arch", f"{OTHER},{HOST_ARCH}", "--suite", SUITE)
    try:
        done = k8sdds(*words, timeout_s=7200)
        assert done.returncode == 0, done.stderr
        done = k8sdds("bundle", "verify", "both")
        assert done.returncode == 0 and "items are intact" in done.stdout, done.stderr
        listed = json.loads(k8sdds("bundle", "list", "both", "--json").stdout)
        kinds = {
            arch: {
                (one["kind"], one["name"])
                for one in listed
                if one["arch"] == arch and one["kind"] != "package"
            }
            for arch in (HOST_ARCH, OTHER)
        }
        assert kinds[OTHER] == kinds[HOST_ARCH] and len(kinds[OTHER]) > 15
        assert {
            ("binary", "kubernetes"),
            ("image", "k8sdds.local/perftest:0.1.0"),
            ("index", "Packages"),
        } <= kinds[OTHER]
        made = Bundle.open(tmp_path / "both")
        for arch in (HOST_ARCH, OTHER):
            debs = {one.name for one in made.packages(arch, SUITE)}
            assert {"containerd", "runc", "libc6"} <= debs
            found = programs(made, "perftest", arch)
            assert set(found.values()) == {arch}
            own = [path for path in found if path.startswith("/opt/k8sdds/")]
            assert len(own) == 5 and "/opt/k8sdds/k8sdds-perftest" in own
        server = programs(made, "discovery-server", OTHER)
        assert server["/usr/bin/fast-discovery-server"] == OTHER
        # Once more it is all in the cache.
        shutil.rmtree(tmp_path / "both")
        again = k8sdds(*words, timeout_s=1200)
        assert (again.returncode, again.stderr) == (0, ""), again.stderr
    finally:
        shutil.rmtree(tmp_path / "both", ignore_errors=True)


@pytest.mark.long
def test_programs_of_the_other_architecture_run_in_the_emulator() -> None:
    """The programs of the image run without binfmt_misc."""
    found = native.programs("perftest", OTHER, print)
    emulator = emulation.fetch_emulator(OTHER, HOST_ARCH, print)
    root = native.debian.sysroot(OTHER, native.LIBRARIES, print)
    argv = [emulator, "-L", root, found["/opt/k8sdds/k8sdds-perftest"], "-version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    here = native.programs("perftest", HOST_ARCH, print)["/opt/k8sdds/k8sdds-perftest"]
    assert (
        done.stdout == subprocess.run([here, "-version"], capture_output=True, text=True, timeout=60).stdout
    )


def test_missing_prerequisites_for_the_other_architecture_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="nothing to emulate"):
        emulation.check(HOST_ARCH, HOST_ARCH)
    with pytest.raises(InputError, match="s390x"):
        emulation.check("s390x", HOST_ARCH)
    monkeypatch.setattr(native, "SOURCES", tmp_path / "nothing")
    with pytest.raises(PrerequisiteError, match="sources"):
        native.check(OTHER)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match=f"the compiler for {OTHER}") as error:
        native.check(OTHER)
    assert f"g++-{native.TRIPLETS[OTHER].replace('_', '-')}" in error.value.remedy
    assert set(BUNDLE_ARCHITECTURES) == set(native.TRIPLETS) == set(emulation.PROGRAMS)
