"""Download official programs and images, verify their checksums, and keep them in the cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import json
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.bundle import cache, oci, official
from k8sdds.bundle.contents import Report
from k8sdds.bundle.official import Download, Release
from k8sdds.system import tar
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.faults import explained
from k8sdds.system.files import creating_folder
from k8sdds.system.paths import cache_folder

CONNECT_TIMEOUT_S = 5
"""A machine without internet falls back to Go modules after this time."""
STALL_TIMEOUT_S = 60
"""Longest time without data from a server."""
IMAGE_TIMEOUT_S = 900
PARALLEL = 4
INDEX = "items.json"


class Unavailable(Exception):
    """An official build cannot be downloaded. The message contains the address and the reason."""


class WrongChecksum(PrerequisiteError):
    """A download does not have the expected content. Nothing is used in its place unless the user decides so."""

    def __init__(self, message: str, expected: str) -> None:
        """Add the remedy. `expected` names where the expected checksum comes from."""
        super().__init__(
            f"{message}; nothing was installed",
            f"a proxy or mirror may have changed the download, the project may have replaced it, or {expected} may be"
            f" wrong; to continue without it, build from Go modules: {official.VARIABLE}={official.MODULES}",
        )


@dataclass(frozen=True)
class ProvidedItem:
    """A program or an image of one architecture that k8sdds did not build."""

    name: str
    source: str
    """Where it comes from, with a SHA-256: URL#sha256=DIGEST of a file; NAME@sha256:DIGEST with the digest of the index
    of all architectures; or FILE#sha256=DIGEST of an archive."""
    verified: str
    """What this SHA-256 was compared with: `pinned`, `published`, `registry` (nothing else) or `archive`."""
    digest: str = ""
    """SHA-256 of the manifest of an image. Empty for a program."""


@dataclass(frozen=True)
class Provided:
    """A downloaded release, or images of an archive, for one architecture, in a folder of the cache."""

    folder: Path
    items: tuple[ProvidedItem, ...]

    @classmethod
    def read(cls, folder: Path) -> Provided:
        """Read the folder. Raises FileNotFoundError if it is not in the cache."""
        cache.mark_used(folder)
        return cls(folder, tuple(ProvidedItem(**item) for item in json.loads((folder / INDEX).read_text())))

    def item(self, name: str) -> ProvidedItem:
        """Return a program or an image by its name."""
        return next(item for item in self.items if item.name == name)

    def program(self, name: str) -> Path:
        """Return the path of a program."""
        return self.folder / "bin" / name

    def blob(self, digest: str) -> Path:
        """Return the path of a part of an image, by the SHA-256 of its content."""
        return self.folder / "blobs" / digest


class Downloader:
    """Downloads releases into the cache, side by side."""

    def __init__(self, pinned: Mapping[str, str], report: Report) -> None:
        self._pinned = pinned
        self._report = report
        self._unreachable: dict[str, str] = {}
        self._stopped = threading.Event()

    def cached(self, release: Release, arch: str) -> Provided | None:
        """Return a release from the cache, or None if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            return Provided.read(self._folder(release, arch))
        return None

    def fetch(self, wanted: Sequence[tuple[Release, str]]) -> list[Provided | Unavailable]:
        """Download releases, each for an architecture; return each, or why it is not available.

        In a block of `cache.frozen`, only asks which servers answer; the releases returned do not exist.
        """
        hosts = {host for release, _ in wanted for host in _hosts(release)}
        with ThreadPoolExecutor(PARALLEL) as pool:
            try:
                self._unreachable = {host: why for host, why in pool.map(_probe, hosts) if why}
                if cache.is_frozen():
                    return [self._planned(release, arch) for release, arch in wanted]
                return list(pool.map(lambda pair: self._fetch(*pair), wanted))
            finally:
                # After an error or Ctrl-C, downloads of files end at once, and no further image is downloaded.
                self._stopped.set()

    def _planned(self, release: Release, arch: str) -> Provided | Unavailable:
        with contextlib.suppress(cache.NotCached):
            return self._fetch(release, arch)
        return Provided(self._folder(release, arch), ())

    def _fetch(self, release: Release, arch: str) -> Provided | Unavailable:
        for host in _hosts(release):
            if host in self._unreachable:
                return Unavailable(self._unreachable[host])
        folder = self._folder(release, arch)
        step = f"downloading {release.name} {release.version} for {arch}"
        remedy = "free space (k8sdds bundle cache), or set K8SDDS_CACHE_DIR to another folder"
        try:
            with (
                explained(f"cannot write {folder}", remedy),
                cache.creating(folder, step, self._report, f"{release.name}-{arch}.lock") as missing,
            ):
                if missing:
                    self._create(folder, release, arch)
        except Unavailable as error:
            return error
        return self.cached(release, arch) or Unavailable(f"{folder} was removed by another command")

    def _folder(self, release: Release, arch: str) -> Path:
        # A release is downloaded again when its pins change.
        names = [*(file.url.format(arch=arch) for file in release.downloads), *release.images]
        pins = {name: self._pinned.get(name) for name in names}
        key = hashlib.sha256(oci.canonical([INDEX, asdict(release), pins])).hexdigest()[:16]
        return cache_folder() / "official" / f"{release.name}-{arch}-{key}"

    def _create(self, folder: Path, release: Release, arch: str) -> None:
        with creating_folder(folder) as unfinished:
            (unfinished / "bin").mkdir(parents=True)
            (unfinished / "blobs").mkdir()
            programs = [item for file in release.downloads for item in self._file(unfinished, file, arch)]
            images = [self._image(unfinished, name, arch) for name in release.images]
            write_index(unfinished, [*programs, *images])

    def _file(self, folder: Path, file: Download, arch: str) -> list[ProvidedItem]:
        url = file.url.format(arch=arch)
        pinned = self._pinned.get(url)
        expected = pinned or self._published(url)
        with tempfile.NamedTemporaryFile(dir=folder) as temporary:
            digest = hashlib.sha256()
            with _open(url) as response:
                while chunk := _read(response, url):
                    self._check_stopped(url)
                    digest.update(chunk)
                    temporary.write(chunk)
            temporary.flush()
            _compare(url, digest.hexdigest(), expected, pinned is not None)
            names = file.members or (url.rpartition("/")[2],)
            if file.members:
                _unpack(Path(temporary.name), file.members, folder / "bin", url)
            else:
                shutil.copyfile(temporary.name, folder / "bin" / names[0])
        for name in names:
            (folder / "bin" / name).chmod(0o755)
        verified = "pinned" if pinned else "published"
        return [ProvidedItem(name, f"{url}#sha256={digest.hexdigest()}", verified) for name in names]

    def _published(self, url: str) -> str:
        with _open(f"{url}.sha256") as response:
            words = _read(response, url).decode("ascii", "replace").split()
        if not words or not re.fullmatch("[0-9a-f]{64}", words[0]):
            raise Unavailable(f"{url}.sha256 does not contain a checksum")
        return words[0]

    def _image(self, folder: Path, name: str, arch: str) -> ProvidedItem:
        raw = self._skopeo(name, "inspect", "--raw", f"docker://{name}")
        index = hashlib.sha256(raw).hexdigest()
        pinned = self._pinned.get(name)
        _compare(name, index, pinned or index, pinned is not None)
        repository = name.rpartition(":")[0]
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            # The format `dir` keeps manifest and layers byte for byte.
            platform = ["--override-os", "linux", "--override-arch", arch]
            copy = ["copy", "--quiet", "--preserve-digests", f"docker://{repository}@sha256:{index}"]
            self._skopeo(name, *platform, *copy, f"dir:{temporary}")
            manifest = Path(temporary, "manifest.json")
            digests = oci.parts(oci.manifest(manifest))
            digest = oci.file_sha256(manifest)
            for part in digests:
                (Path(temporary) / part).replace(folder / "blobs" / part)
            manifest.replace(folder / "blobs" / digest)
        verified = "pinned" if pinned else "registry"
        return ProvidedItem(name, f"{repository}@sha256:{index}", verified, digest)

    def _skopeo(self, name: str, *argv: str) -> bytes:
        """Run skopeo, which verifies the digests of all content, for an image."""
        self._check_stopped(name)
        try:
            done = subprocess.run(
                ["skopeo", *argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=IMAGE_TIMEOUT_S
            )
        except FileNotFoundError:
            raise Unavailable(
                "skopeo, which downloads images, is not installed (k8sdds setup --for deploy)"
            ) from None
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{name}: no image within {IMAGE_TIMEOUT_S} s") from None
        if done.returncode:
            text = (done.stderr.decode(errors="replace").strip().splitlines() or ["skopeo failed"])[-1]
            message = re.sub(r'^time="[^"]*" level=\w+ msg="?', "", text).rstrip('"')
            if "digest" in message.lower():
                raise WrongChecksum(f"{name}: {message[:400]}", "the registry's copy")
            raise Unavailable(f"{name}: {message[:400]}")
        return done.stdout

    def _check_stopped(self, name: str) -> None:
        if self._stopped.is_set():
            raise Unavailable(f"{name}: the download was stopped")


def write_index(folder: Path, items: Iterable[ProvidedItem]) -> None:
    """Write what a folder contains, for `Provided.read`."""
    (folder / INDEX).write_text(json.dumps([asdict(each) for each in items], indent=1) + "\n")


def _hosts(release: Release) -> list[str]:
    addresses = [*(file.url for file in release.downloads), *(f"https://{name}" for name in release.images)]
    return list(dict.fromkeys(urllib.parse.urlsplit(address).netloc for address in addresses))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: urllib then raises HTTPError."""


_REGISTRIES = {"docker.io": "registry-1.docker.io"}
"""Hosts of registries that have another name in references of images."""


@functools.cache
def _probe(host: str) -> tuple[str, str]:
    """Return a host, and why it does not answer within CONNECT_TIMEOUT_S; empty if it answers."""
    request = urllib.request.Request(f"https://{_REGISTRIES.get(host, host)}/", method="HEAD")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=CONNECT_TIMEOUT_S):
            pass
    except urllib.error.HTTPError:
        pass  # whether it has the files is seen when they are requested
    except (OSError, http.client.HTTPException) as error:
        return host, f"https://{host}: {_reason(error)}"
    return host, ""


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(getattr(reason, "strerror", None) or reason or type(error).__name__)


def _open(url: str) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": f"k8sdds/{versions.K8SDDS}"})
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=STALL_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"{url}: HTTP {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url}: {_reason(error)}") from error
    return response


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    """Return the next part of a file; nothing at its end."""
    try:
        data = response.read(1 << 20)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url}: {_reason(error)}") from error
    if not data and response.length:
        # http.client reports a connection that was closed early as the end of the file.
        raise Unavailable(f"{url}: the connection was closed {response.length} bytes before the end")
    return data


def _compare(name: str, actual: str, expected: str, pinned: bool) -> None:
    if actual == expected:
        return
    origin = "the pinned one" if pinned else "the one that is published next to it"
    raise WrongChecksum(
        f"{name} has the SHA-256 {actual}, but {origin} is {expected}",
        f"the checksum in {official.checksum_file()}" if pinned else f"the checksum in {name}.sha256",
    )


def _unpack(archive: Path, members: Iterable[str], folder: Path, url: str) -> None:
    """Write the programs in an archive to a folder, without their folders, owners and links."""
    try:
        with tar.opened(archive) as opened:
            content = {m.name.rpartition("/")[2]: m for m in opened.members() if m.isfile()}
            for name in members:
                if name not in content:
                    raise Unavailable(f"{url} does not contain {name}")
                with opened.content(content[name]) as source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    except tar.DamagedTar as error:
        raise Unavailable(f"{url} is not an archive: {error}") from error
