"""Build the images of k8sdds, write them to a file, and push them to a registry on the loopback interface."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from k8sdds import bundle, versions
from k8sdds.bundle import images, oci
from k8sdds.bundle.bundle import Bundle
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.setup.native import PROGRAMS
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.paths import cache_folder, native_program
from tests.conftest import Command
from tests.deploy import registries


@pytest.fixture(scope="module")
def own() -> Bundle:
    return bundle.cached_bundle(only_k8sdds=True)


def config(bundle: Bundle, name: str) -> dict:
    (item,) = images.select(bundle, HOST_ARCH, [name])
    manifest = json.loads(bundle.file(item).read_text())
    return json.loads((bundle.folder / "oci/blobs/sha256" / manifest["config"]["digest"][7:]).read_text())


def files(bundle: Bundle, name: str) -> set[str]:
    """Return the names of the files in an image."""
    (item,) = images.select(bundle, HOST_ARCH, [name])
    names: set[str] = set()
    for layer in json.loads(bundle.file(item).read_text())["layers"]:
        with tarfile.open(bundle.folder / "oci/blobs/sha256" / layer["digest"][7:]) as archive:
            names |= {Path(name).name for name in archive.getnames()}
    return names


def test_images_need_no_kubernetes_and_run_as_an_unprivileged_user(own: Bundle) -> None:
    names = [item.name for item in images.select(own, HOST_ARCH)]
    assert set(images.references(["perftest", "discovery-server", "tools"])) <= set(names)
    assert own.binaries(HOST_ARCH) == [] and all(
        item.name.startswith(versions.LOCAL_REGISTRY) for item in own.items
    )
    for name in ("perftest", "discovery-server"):
        assert config(own, name)["config"]["User"] == "65532"
    assert own.verify() == []


def test_the_perftest_image_contains_every_middleware(own: Bundle) -> None:
    names = files(own, "k8sdds.local/perftest:0.1.0")
    backends = {f"libk8sdds-perftest-{name}.so" for name in ("cyclonedds", "fastdds", "raw")}
    assert backends | {*PROGRAMS, "k8sdds-probe"} <= names
    # That of Zenoh is contained if this machine has it.
    zenoh = {"libk8sdds-perftest-zenoh.so", "zenoh-licenses.txt"}
    built = Path(native_program("k8sdds-perftest")).with_name("zenohd").is_file()
    assert names & {*zenoh, "zenohd"} == (zenoh if built else set())
    assert ("zenohd" in files(own, "discovery-server")) == built
    assert any(name.startswith("libfastrtps.so") for name in names)
    assert any(name.startswith("libddsc.so") for name in names)


def test_the_command_writes_an_archive(
    k8sdds: Command, own: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another HOME would lose the cache of items that take long to build.
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(cache_folder()))
    done = k8sdds("images", "build", "tools", "-o", "tools.tar")
    assert done.returncode == 0, done.stderr
    (item,) = images.select(own, HOST_ARCH, ["tools"])
    assert done.stdout.split()[0] == item.name and item.sha256 in done.stdout
    with tarfile.open(tmp_path / "tools.tar") as archive:
        index = json.load(archive.extractfile("index.json"))
    assert [obj["annotations"]["io.containerd.image.name"] for obj in index["manifests"]] == [item.name]
    for args, message in (
        (("build", "tools", "-o", "tools.tar"), "already exists"),
        (("build", "perftest:9.9.9"), "one of:"),
        (("build", "--arch", "amd64,arm64", "-o", "both.tar"), "one architecture"),
    ):
        done = k8sdds("images", *args)
        assert done.returncode == 2 and message in done.stderr, (args, done.stderr)


def test_a_push_is_one_image_for_all_architectures(own: Bundle, tmp_path: Path) -> None:
    # A second architecture as a bundle of both has it: here the same programs under another name.
    (tools,) = images.select(own, HOST_ARCH, ["tools"])
    manifest = json.loads(own.file(tools).read_text())
    folder = tmp_path / "bundle"
    shutil.copytree(own.folder, folder, symlinks=True, copy_function=os.link)
    layout = oci.Layout(folder / "oci")
    other = layout.image(tools.name, "arm64", ["/x"], manifest["layers"])
    item = type(tools)(
        **{**vars(tools), "arch": "arm64", "path": f"oci/blobs/sha256/{other}", "sha256": other}
    )
    both = Bundle(folder, own.name, own.kubernetes, own.toolchain, (HOST_ARCH, "arm64"), (tools, item))
    with registries.running(tmp_path) as registry:
        name = f"{registry}/lab/tools:1"
        assert images.push(both, [tools, item], f"{registry}/lab/", plain_http=True) == [name]
        inspect = ["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{name}"]
        pushed = json.loads(subprocess.run(inspect, check=True, capture_output=True, timeout=60).stdout)
    digests = {image["platform"]["architecture"]: image["digest"] for image in pushed["manifests"]}
    assert digests == {HOST_ARCH: f"sha256:{tools.sha256}", "arm64": f"sha256:{other}"}


def test_a_rejected_push_is_reported(own: Bundle) -> None:
    items = images.select(own, HOST_ARCH, ["tools"])
    with pytest.raises(PrerequisiteError, match=r"127\.0\.0\.1:1/tools:1: .*refused") as error:
        images.push(own, items, "127.0.0.1:1")
    assert "address and port of 127.0.0.1:1" in error.value.remedy and "level=" not in error.value.message
    with pytest.raises(InputError, match="not a valid image reference"):
        images.push(own, items, "127.0.0.1:1/Not A Name")
    with pytest.raises(InputError, match="no registry"):
        images.push(own, items, "/")
    with pytest.raises(InputError, match="one of"):
        images.select(own, HOST_ARCH, ["nothing"])
