"""Create bundles for both architectures on a machine of one of them."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from k8sdds.bundle import Bundle, architecture, emulation, images, native
from k8sdds.bundle.contents import HOST_ARCH, TRIPLETS
from k8sdds.middleware import ALWAYS_BUILT
from k8sdds.setup.native import PROGRAMS
from k8sdds.system import debian_release
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import cache_folder
from k8sdds.versions import BUNDLE_ARCHITECTURES
from tests.conftest import Command

RELEASE = debian_release.running("bundles")
SUITE = RELEASE.codename
OTHER = "amd64" if HOST_ARCH == "arm64" else "arm64"


def programs(bundle: Bundle, image: str, arch: str) -> dict[str, str]:
    """Return the architectures of the programs and libraries of an image, by path."""
    (item,) = images.select(bundle, arch, [image])
    machines = {}
    for layer in json.loads(bundle.file(item).read_text())["layers"]:
        with tarfile.open(bundle.folder / "oci/blobs/sha256" / layer["digest"][7:]) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                machine = architecture.of_program(content.read(20)) if content else None
                if machine:
                    machines[f"/{member.name}"] = machine
    return machines


@pytest.mark.long
def test_a_bundle_for_both_architectures_is_created_verified_and_listed(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another HOME would lose the cache of items that take long to build.
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(cache_folder()))
    args = ("bundle", "create", "both", "--arch", f"{OTHER},{HOST_ARCH}", "--suite", SUITE)
    try:
        done = k8sdds(*args, timeout_s=7200)
        assert done.returncode == 0, done.stderr
        done = k8sdds("bundle", "verify", "both")
        assert done.returncode == 0 and "items are intact" in done.stdout, done.stderr
        listed = json.loads(k8sdds("bundle", "list", "both", "--json").stdout)
        kinds = {
            arch: {
                (item["kind"], item["name"])
                for item in listed
                if item["arch"] == arch and item["kind"] != "package"
            }
            for arch in (HOST_ARCH, OTHER)
        }
        assert kinds[OTHER] == kinds[HOST_ARCH] and len(kinds[OTHER]) > 15
        assert {
            ("binary", "kubernetes"),
            ("image", "k8sdds.local/perftest:0.1.0"),
            ("index", "Packages"),
        } <= kinds[OTHER]
        bundle = Bundle.open(tmp_path / "both")
        for arch in (HOST_ARCH, OTHER):
            debs = {item.name for item in bundle.packages(arch, SUITE)}
            assert {"containerd", "runc", "libc6"} <= debs
            programs_by_path = programs(bundle, "perftest", arch)
            assert set(programs_by_path.values()) == {arch}
            own = {Path(path).name for path in programs_by_path if path.startswith("/opt/k8sdds/")}
            modules = {f"libk8sdds-perftest-{name}.so" for name in ALWAYS_BUILT}
            assert own - {"libk8sdds-perftest-zenoh.so"} == {*PROGRAMS, "k8sdds-transactions", *modules}
        server = programs(bundle, "discovery-server", OTHER)
        assert server["/usr/bin/fast-discovery-server"] == OTHER
        # Once more it is all in the cache.
        shutil.rmtree(tmp_path / "both")
        again = k8sdds(*args, timeout_s=1200)
        assert (again.returncode, again.stderr) == (0, ""), again.stderr
    finally:
        shutil.rmtree(tmp_path / "both", ignore_errors=True)


def test_missing_prerequisites_for_the_other_architecture_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="nothing to emulate"):
        emulation.check(HOST_ARCH, HOST_ARCH)
    with pytest.raises(InputError, match="s390x"):
        emulation.check("s390x", HOST_ARCH)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match=f"the compiler for {OTHER}") as error:
        native.check(OTHER)
    assert error.value.remedy == f"run: k8sdds setup --for deploy-{OTHER}"
    assert set(BUNDLE_ARCHITECTURES) == set(TRIPLETS) == set(emulation.PROGRAMS)
