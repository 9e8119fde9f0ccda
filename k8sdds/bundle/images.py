"""k8sdds's own images (perftest, discovery server, tools) by themselves: as a file, or to a registry."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import oci
from k8sdds.bundle.bundle import Bundle, Item
from k8sdds.bundle.recipe import IMAGES
from k8sdds.system.errors import InputError, PrerequisiteError

INDEX = "application/vnd.oci.image.index.v1+json"
PUSH_TIMEOUT_S = 1800


def check(names: Sequence[str]) -> None:
    """Raise InputError for a name that none of our images has; before they are made."""
    known = {
        image.name.removeprefix(versions.LOCAL_REGISTRY): ""
        for image in IMAGES
        if image.name.startswith(versions.LOCAL_REGISTRY)
    }
    known |= {name.partition(":")[0]: name for name in known}
    for name in names:
        if name.removeprefix(versions.LOCAL_REGISTRY) not in known:
            choice = ", ".join(short for short, whole in known.items() if whole)
            raise InputError(f"there is no image {name!r}", f"one of: {choice}")


def own(bundle: Bundle, arch: str, names: Sequence[str] = ()) -> list[Item]:
    """Our images for an architecture: all, or those named (`perftest`, `tools:1`, or the whole reference).

    Raises InputError for a name that none has.
    """
    there = [item for item in bundle.images(arch) if item.name.startswith(versions.LOCAL_REGISTRY)]
    known = {short(item): item for item in there}
    chosen = []
    for name in names:
        wanted = name.removeprefix(versions.LOCAL_REGISTRY)
        found = known.get(wanted) or known.get(wanted.partition(":")[0])
        if found is None or (":" in wanted and found.name != versions.LOCAL_REGISTRY + wanted):
            raise InputError(f"there is no image {name!r} for {arch}", f"one of: {', '.join(known)}")
        chosen.append(found)
    return chosen or there


def short(item: Item) -> str:
    """`perftest` of k8sdds.local/perftest:0.1.0."""
    return item.name.removeprefix(versions.LOCAL_REGISTRY).partition(":")[0]


def push(bundle: Bundle, items: Sequence[Item], target: str, plain_http: bool = False) -> list[str]:
    """Copy images to `target`/NAME:VERSION with skopeo, all architectures of a name as one; their references.

    skopeo finds credentials where `skopeo login`, podman or docker left them. Raises PrerequisiteError where it is
    not here or fails.
    """
    if not target.strip("/"):
        raise InputError("no registry is named", "REGISTRY or REGISTRY/PATH, such as registry.example/lab")
    if not shutil.which("skopeo"):
        raise PrerequisiteError(
            "skopeo is not installed, which talks to registries", "sudo apt-get install skopeo"
        )
    pushed = []
    for name in dict.fromkeys(item.name for item in items):
        same = [item for item in items if item.name == name]
        reference = f"{target.rstrip('/')}/{name.removeprefix(versions.LOCAL_REGISTRY)}"
        with tempfile.TemporaryDirectory(prefix="k8sdds-push-") as folder:
            tag = name.rpartition(":")[2]
            _layout(bundle, same, Path(folder), tag)
            argv = [
                "skopeo",
                "copy",
                "--all",
                "--preserve-digests",
                *(["--dest-tls-verify=false"] if plain_http else []),
            ]
            try:
                done = subprocess.run(
                    [*argv, f"oci:{folder}:{tag}", f"docker://{reference}"],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PUSH_TIMEOUT_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired as error:
                raise PrerequisiteError(f"{reference}: not there after {PUSH_TIMEOUT_S} s") from error
        if "invalid reference format" in done.stderr:
            what = f"{reference!r} is no name of an image in a registry"
            raise InputError(what, "lower-case letters, digits, and . _ - / between them")
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["skopeo failed"])[-1]
            raise PrerequisiteError(
                f"{reference}: {said[:400]}", "log in: skopeo login; without TLS: --plain-http"
            )
        pushed.append(reference)
    return pushed


def _layout(bundle: Bundle, items: Sequence[Item], folder: Path, tag: str) -> None:
    """A layout with one image of several architectures, its blobs linked to the bundle's."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    source = (bundle.folder / "oci/blobs/sha256").resolve()
    manifests = []
    for item in items:
        raw = bundle.file(item).read_bytes()
        manifest = json.loads(raw)
        parts = [one["digest"].removeprefix("sha256:") for one in (manifest["config"], *manifest["layers"])]
        for digest in (item.sha256, *parts):
            if not (blobs / digest).exists():
                (blobs / digest).symlink_to(source / digest)
        manifests.append({
            "mediaType": oci.MANIFEST, "digest": f"sha256:{item.sha256}", "size": len(raw),
            "platform": {"os": "linux", "architecture": item.arch},
        })  # fmt: skip
    layout = oci.Layout(folder)
    both = layout.add(oci.canonical({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))
    entry = {"mediaType": INDEX, **both, "annotations": {"org.opencontainers.image.ref.name": tag}}
    (folder / "index.json").write_bytes(oci.canonical({"schemaVersion": 2, "manifests": [entry]}))
