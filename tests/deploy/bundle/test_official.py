"""Create bundles from official builds: servers with the official names, in a network namespace without internet."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from k8sdds import bundle, versions
from k8sdds.bundle import images, oci, official
from k8sdds.bundle.bundle import Bundle
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.system.paths import cache_folder
from tests import bundles
from tests.clusters import run
from tests.deploy import registries

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
HERE = Path(__file__).parent
NAMES = ("dl.k8s.io", "github.com", "registry.k8s.io", "ghcr.io", "registry-1.docker.io")
OTHER_ARCH = "arm64" if HOST_ARCH == "amd64" else "amd64"
RELEASES = {release.name: release for release in official.RELEASES}
OWN_PARTS = ("bases/*", *(f"programs/{name}-*" for name in ("attach", "flannel", "meter", "probe", "routes")))
"""What no server offers: the parts of k8sdds's own images."""


def program(name: str) -> bytes:
    return f"#!/bin/sh\necho {name}\n".encode()


@dataclass
class Internet:
    """A network namespace with the official servers and nothing else."""

    folder: Path
    process: subprocess.Popen[str]
    cache: Path = Path("none")

    def create(
        self,
        folder: Path,
        *options: object,
        source: str = official.AUTO,
        pinned: dict[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Create a bundle there with the command, with a cache of its own. `within` starts the command line."""
        pins = self.folder / "pins.json"
        pins.write_text(json.dumps(pinned or {}))
        words = ["bundle", "create", "--suite", "none"]
        command = [*within, sys.executable, HERE / "official_command.py", pins, *words, folder, *options]
        variables = {official.VARIABLE: source, "K8SDDS_CACHE_DIR": str(self.cache)}
        return self.enter(*command, **variables)

    def enter(self, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "SSL_CERT_FILE": str(self.folder / "server.crt"), **variables}
        return subprocess.run(
            ["nsenter", "-t", str(self.process.pid), "-n", "-m", *map(str, argv)],
            capture_output=True, text=True, timeout=300, env=environment, cwd=self.folder,
        )  # fmt: skip

    def file(self, url: str) -> Path:
        return self.folder / "files" / url.removeprefix("https://")

    def publish(self, url: str, data: bytes) -> None:
        path = self.file(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.with_name(f"{path.name}.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  {path.name}\n")

    def publish_image(self, name: str) -> str:
        """Push an image for two architectures and return the SHA-256 of its index."""
        folder = self.folder / "images" / hashlib.sha256(name.encode()).hexdigest()
        layout, items = oci.Layout(folder / "oci"), []
        for arch in (HOST_ARCH, OTHER_ARCH):
            layer = layout.layer({"/name": f"{name} {arch}\n".encode()})
            items.append(bundles.image(name, layout.image(name, arch, ["/name"], [layer]), arch))
        images._layout(bundles.write(folder, items, (HOST_ARCH, OTHER_ARCH)), items, folder / "index", "1")
        copy = (
            "skopeo",
            "copy",
            "--all",
            "--preserve-digests",
            f"oci:{folder / 'index'}:1",
            f"docker://{name}",
        )
        done = self.enter(*copy)
        assert done.returncode == 0, done.stderr
        (entry,) = json.loads((folder / "index/index.json").read_text())["manifests"]
        return str(entry["digest"]).removeprefix("sha256:")


def archive(programs: dict[str, bytes]) -> bytes:
    """Return an archive as the project of the CNI plugins publishes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, content in {**programs, "LICENSE": b"text"}.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size, member.mode = len(content), 0o755
            packed.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Internet]:
    """Start the servers, which have no files yet."""
    registries.certificate(folder, *NAMES)
    (folder / "files").mkdir()
    argv = [
        "unshare",
        "--net",
        "--mount",
        sys.executable,
        "-m",
        "tests.deploy.bundle.official_servers",
        folder,
    ]
    with subprocess.Popen(
        argv, cwd=HERE.parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield Internet(folder, process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Internet, dict[str, str]]]:
    """Start the servers; yield them and the checksums of everything that they publish."""
    with serving(tmp_path_factory.mktemp("internet")) as internet:
        pins = {}
        for release in official.RELEASES:
            for file in release.downloads:
                url = file.url.format(arch=HOST_ARCH)
                name = url.rpartition("/")[2]
                internet.publish(
                    url, archive({n: program(n) for n in file.members}) if file.members else program(name)
                )
                pins[url] = hashlib.sha256(internet.file(url).read_bytes()).hexdigest()
            for name in release.images:
                pins[name] = internet.publish_image(name)
        internet.publish_image(versions.KUBE_ROUTER_IMAGE)
        yield internet, pins


@pytest.fixture
def internet(servers: tuple[Internet, dict[str, str]], tmp_path: Path) -> Iterator[Internet]:
    """Yield the servers, with a cache that contains only what no server offers."""
    bundle.cached_bundle(only_k8sdds=True)
    internet, _ = servers
    internet.cache = tmp_path / "cache"
    link_entries(internet, *OWN_PARTS)
    yield internet


def link_entries(internet: Internet, *patterns: str) -> None:
    """Add hard links to entries of the real cache to the command's cache."""
    for path in (path for pattern in patterns for path in cache_folder().glob(pattern)):
        link = internet.cache / path.relative_to(cache_folder())
        link.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".lock" and not path.name.startswith(".") and not link.exists():
            os.link(path, link)


@pytest.fixture
def pins(servers: tuple[Internet, dict[str, str]]) -> dict[str, str]:
    return dict(servers[1])


def test_everything_is_downloaded_and_verified(
    internet: Internet, pins: dict[str, str], tmp_path: Path
) -> None:
    done = internet.create(tmp_path / "bundle", pinned=pins)
    assert done.returncode == 0, done.stderr
    assert f"Kubernetes {versions.KUBERNETES}: official builds" in done.stderr
    created = Bundle.open(tmp_path / "bundle")
    assert created.verify() == []
    assert created.built_and_downloaded[0] == []
    targets = {item.target: item for item in created.binaries(HOST_ARCH)}
    plugin = targets.pop("/opt/cni/bin/flannel")
    assert (plugin.version, plugin.source) == (versions.TOOLS, "")
    assert set(targets) == {
        *(f"/usr/local/bin/{name}" for name in ("kubeadm", "kubelet", "kubectl")),
        *(f"/opt/cni/bin/{name}" for name in ("bridge", "loopback", "macvlan", "host-local", "portmap")),
    }
    for target, item in targets.items():
        assert created.file(item).read_bytes() == program(target.rpartition("/")[2])
        url, _, digest = item.source.partition("#sha256=")
        assert pins[url] == digest and item.verified == "pinned"
    images = {item.name: item for item in created.images(HOST_ARCH)}
    for release in official.RELEASES:
        for name in release.images:
            assert images[name].source == f"{name.rpartition(':')[0]}@sha256:{pins[name]}"
            manifest = json.loads(created.file(images[name]).read_text())
            config = created.folder / "oci/blobs/sha256" / manifest["config"]["digest"][7:]
            assert json.loads(config.read_text())["architecture"] == HOST_ARCH
    assert images[versions.PERFTEST_IMAGE].source == ""
    assert images[versions.KUBE_ROUTER_IMAGE].verified == "registry"
    assert versions.WEAVE_IMAGE not in images and f"without {versions.WEAVE_IMAGE}: " in done.stderr
    # What was downloaded once needs no server.
    again = internet.create(tmp_path / "again", pinned=pins, within=("unshare", "--net"))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again/bundle.json").read_bytes() == (tmp_path / "bundle/bundle.json").read_bytes()


def test_images_of_networks_come_from_archives(
    internet: Internet, pins: dict[str, str], tmp_path: Path
) -> None:
    """For a network that the profile names, even if k8sdds could download its image; others are required."""
    layout = oci.Layout(tmp_path / "oci")
    digest = layout.image("x", HOST_ARCH, ["/name"], [layout.layer({"/name": b"mine"})])
    packed = tmp_path / "image.tar"
    oci.archive(layout.folder, [(versions.KUBE_ROUTER_IMAGE, HOST_ARCH, digest)], packed)
    profile = tmp_path / "lab.yaml"
    profile.write_text(
        f"name: lab\nprovider: local\nnodes: [{{name: one, roles: [control-plane]}}]\nnetwork: kube-router\n"
        f"software: {{source: bundle, images: {{kube-router: {packed}}}}}\n"
    )
    done = internet.create(tmp_path / "bundle", "--profile", profile, pinned=pins)
    assert done.returncode == 0, done.stderr
    created = Bundle.open(tmp_path / "bundle")
    images = {item.name: item for item in created.images(HOST_ARCH)}
    item = images[versions.KUBE_ROUTER_IMAGE]
    assert (item.sha256, item.verified) == (digest, "archive") and item.source.startswith("image.tar#sha256=")
    assert created.verify() == []
    done = internet.create(tmp_path / "other", "--image", f"weavenet={packed}", pinned=pins)
    assert done.returncode == 2 and f"no archive contains {versions.WEAVE_IMAGE}" in done.stderr, done.stderr
    profile.write_text(profile.read_text().replace("kube-router", "weavenet").partition("software")[0])
    with profile.open("a") as file:
        file.write("software: bundle\n")
    done = internet.create(tmp_path / "other", "--profile", profile, pinned=pins)
    assert done.returncode == 3 and f"cannot get {versions.WEAVE_IMAGE}: " in done.stderr, done.stderr
    assert "building" not in done.stderr and not (tmp_path / "other").exists()


def test_an_unpinned_file_is_compared_with_the_published_checksum(internet: Internet, tmp_path: Path) -> None:
    (url,) = (file.url.format(arch=HOST_ARCH) for file in RELEASES["cni-plugins"].downloads)
    published = internet.file(f"{url}.sha256")
    text = published.read_text()
    done = internet.create(tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    items = json.loads((tmp_path / "bundle/bundle.json").read_text())["items"]
    assert {item.get("verified") for item in items if item["source"]} == {"published", "registry"}
    try:
        published.write_text(f"{'0' * 64}\n")
        for path in internet.cache.glob("official/cni-plugins-*[!k]"):
            path.rename(tmp_path / path.name)
        done = internet.create(tmp_path / "other")
    finally:
        published.write_text(text)
    assert done.returncode == 3 and "published next to it is 000" in done.stderr, done.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("what", ["file", "image"])
def test_a_wrong_checksum_is_an_error_in_every_mode(
    internet: Internet, pins: dict[str, str], tmp_path: Path, what: str
) -> None:
    name = versions.PAUSE_IMAGE if what == "image" else next(url for url in pins if url.endswith("/kubelet"))
    pins[name] = "0" * 64
    for source in (official.AUTO, official.OFFICIAL):
        done = internet.create(tmp_path / "bundle", source=source, pinned=pins)
        assert done.returncode == 3, done.stderr
        assert f"{name} has the SHA-256" in done.stderr and f"the pinned one is {'0' * 64}" in done.stderr
        assert "deploy/bundle/SHA256SUMS" in done.stderr
        assert f"build from Go modules: {official.VARIABLE}={official.MODULES}" in done.stderr
        assert not (tmp_path / "bundle").exists()
        assert "Traceback" not in done.stderr


def test_a_lost_connection_is_not_a_wrong_checksum(
    internet: Internet, pins: dict[str, str], tmp_path: Path
) -> None:
    truncated = internet.folder / "truncated"
    truncated.touch()
    try:
        done = internet.create(tmp_path / "bundle", source=official.OFFICIAL, pinned=pins)
    finally:
        truncated.unlink()
    assert done.returncode == 3, done.stderr
    assert re.search("kubeadm: the connection was closed [0-9]+ bytes before the end", done.stderr)
    assert "SHA-256" not in done.stderr


def test_what_is_missing_is_built_from_modules(
    internet: Internet, pins: dict[str, str], tmp_path: Path
) -> None:
    (internet.cache / "go").symlink_to(cache_folder() / "go")
    (url,) = (file.url.format(arch=HOST_ARCH) for file in RELEASES["cni-plugins"].downloads)
    path = internet.file(url)
    hidden = path.with_name("hidden")
    path.rename(hidden)
    try:
        strict = internet.create(tmp_path / "bundle", source=official.OFFICIAL, pinned=pins)
        done = internet.create(tmp_path / "bundle", pinned=pins)
    finally:
        hidden.rename(path)
    assert strict.returncode == 3 and f"no official builds of cni-plugins: {url}: HTTP 404" in strict.stderr
    assert done.returncode == 0, done.stderr
    assert f"no official builds of cni-plugins: {url}: HTTP 404; building from Go modules" in done.stderr
    names = "bridge, loopback, macvlan, host-local, portmap"
    assert f"official builds; built from Go modules: {names}" in done.stderr
    created = Bundle.open(tmp_path / "bundle")
    assert created.built_and_downloaded[0] == names.split(", ") and created.verify() == []


def test_built_programs_in_the_cache_are_used_without_contacting_a_server(
    internet: Internet, tmp_path: Path
) -> None:
    bundle.cached_bundle()
    link_entries(internet, "programs/*")
    done = internet.create(tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    assert "built from Go modules" in done.stderr
    # Only images that cannot be built come from a server.
    (downloaded,) = (internet.cache / "official").glob("[!.]*/items.json")
    assert downloaded.parent.name.startswith("kube-router-")


def test_a_machine_without_internet_says_so(internet: Internet, tmp_path: Path) -> None:
    done = internet.create(tmp_path / "bundle", source=official.OFFICIAL, within=("unshare", "--net"))
    assert done.returncode == 3, done.stderr
    assert "no official builds of kubernetes: https://dl.k8s.io: Network is unreachable" in done.stderr
    assert "K8SDDS_SOFTWARE_FROM=modules builds from Go modules" in done.stderr


PROFILE = """name: official
provider: local
software: {{source: bundle, bundle: {bundle}}}
nodes:
  - {{name: alone, roles: [control-plane, worker]}}
"""


@pytest.mark.long
def test_a_cluster_runs_on_official_builds(tmp_path: Path) -> None:
    """The servers publish working software in the form of the projects: Docker images with compressed layers."""
    built = bundle.cached_bundle()
    programs = {item.name: built.file(item).read_bytes() for item in built.binaries(HOST_ARCH)}
    programs |= dict.fromkeys(("kubeadm", "kubelet", "kubectl"), programs["kubernetes"])
    images = {item.name: item for item in built.images(HOST_ARCH)}
    (tmp_path / "internet").mkdir()
    with serving(tmp_path / "internet") as internet:
        internet.cache = tmp_path / "cache"
        link_entries(internet, *OWN_PARTS)
        for release in official.RELEASES:
            for file in release.downloads:
                name = file.url.rpartition("/")[2]
                members = {member: programs[member] for member in file.members}
                internet.publish(
                    file.url.format(arch=HOST_ARCH), archive(members) if members else programs[name]
                )
            for name in release.images:
                packed = internet.folder / "image.tar"
                oci.archive(built.folder / "oci", [(name, HOST_ARCH, images[name].sha256)], packed)
                copy = ("skopeo", "copy", "--format", "v2s2", f"oci-archive:{packed}", f"docker://{name}")
                assert internet.enter(*copy).returncode == 0
        done = internet.create(tmp_path / "bundle", source=official.OFFICIAL)
        assert done.returncode == 0, done.stderr
    profile, state = tmp_path / "official.yaml", tmp_path / "state"
    profile.write_text(PROFILE.format(bundle=tmp_path / "bundle"))
    state.mkdir(mode=0o700)
    try:
        done = run(state, "deploy", str(profile), "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"Kubernetes {versions.KUBERNETES} (official builds)" in done.stdout
        assert "alone: smoke test: run a pod" in done.stdout
        again = run(state, "deploy", str(profile), "--yes")
        assert again.stdout == "no changes\n", again.stdout + again.stderr
        record = json.loads((state / "clusters/official/cluster.json").read_text())
        assert record["software"]["origin"] == "official builds"
        assert any(source.startswith("https://dl.k8s.io/") for source in record["software"]["downloads"])
    finally:
        run(state, "destroy", str(profile), "--yes")
