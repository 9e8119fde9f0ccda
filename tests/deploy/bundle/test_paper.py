"""Create the bundle of the study's cluster: all its networks, for its x86 control plane and its Raspberry Pis."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.bundle import Bundle, architecture, oci
from k8sdds.system.paths import cache_folder
from tests import image_archives
from tests.conftest import Command

NETWORKS = ("weavenet", "flannel-vxlan", "flannel-hostgw", "kube-router")
PROGRAMS = {
    versions.WEAVE_IMAGE: {"weaver", "kube-utils", "weaveutil"},
    versions.WEAVE_NPC_IMAGE: {"weave-npc"},
    versions.FLANNEL_IMAGE: {"flanneld"},
    versions.KUBE_ROUTER_IMAGE: {"kube-router"},
}


def machines(bundle: Bundle, image: str, arch: str) -> dict[str, str]:
    """Return the architectures of all programs and libraries of an image, by name."""
    (item,) = [item for item in bundle.images(arch) if item.name == image]
    found = {}
    for layer in oci.manifest(bundle.file(item))["layers"]:
        with tarfile.open(
            bundle.folder / "oci/blobs/sha256" / layer["digest"].removeprefix("sha256:")
        ) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                machine = architecture.of_program(content.read(20)) if content else None
                if machine:
                    found[Path(member.name).name] = machine
    return found


@pytest.mark.long
def test_the_bundle_of_the_study_has_all_its_networks_for_its_machines(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = image_archives.options("kube-router", "weavenet")
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(cache_folder()))
    try:
        done = k8sdds(
            "bundle", "create", "paper", "--profile", "paper", "--suite", "none", *options, timeout_s=7200
        )
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines() if " network " in line]
        # Nothing is missing: a reason would follow the name.
        assert [(line[0], line[-1]) for line in lines] == [
            (arch, network) for network in NETWORKS for arch in ("amd64", "arm64")
        ], done.stdout
        done = k8sdds("bundle", "verify", "paper", "--profile", "paper", timeout_s=600)
        assert done.returncode == 0 and "are intact" in done.stdout, done.stderr
        done = k8sdds("bundle", "verify", "paper", "--profile", "paper", "--experiment", "cni-overhead")
        assert done.returncode == 0, done.stderr
        bundle = Bundle.open(tmp_path / "paper")
        for arch in bundle.arches:
            for image, programs in PROGRAMS.items():
                found = machines(bundle, image, arch)
                assert programs <= found.keys() and set(found.values()) == {arch}, (image, arch)
    finally:
        shutil.rmtree(tmp_path / "paper", ignore_errors=True)
