"""Create small bundles."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from k8sdds.bundle import Bundle, Item, oci
from k8sdds.bundle.contents import HOST_ARCH


def image(name: str, digest: str, arch: str = HOST_ARCH) -> Item:
    """Return an image in the layout `oci` of a bundle."""
    return Item("image", name, "1", arch, f"oci/blobs/sha256/{digest}", digest, 1)


def write(
    folder: Path, items: Iterable[Item], arches: Sequence[str] = (HOST_ARCH,), kubernetes: str = "0"
) -> Bundle:
    """Write the index of a bundle whose other files exist, or are not needed."""
    index = {"format": 1, "name": "small", "kubernetes": kubernetes, "toolchain": "", "arches": list(arches)}
    (folder / "bundle.json").write_text(json.dumps(index | {"items": [asdict(item) for item in items]}))
    return Bundle.open(folder)


def small(folder: Path, program: Path) -> Bundle:
    """Create a bundle with two images that share a layer, and one binary, which all contain a program."""
    folder.mkdir()
    layout = oci.Layout(folder / "oci")
    layer = layout.layer({"/bin/probe": program, "/bin/other": oci.Link("probe"), "/etc/file": b"text"})
    (folder / "bin").mkdir()
    shutil.copyfile(program, folder / "bin/probe")
    digest = oci.file_sha256(program)
    items = [Item("binary", "probe", "1", HOST_ARCH, "bin/probe", digest, 1, "/usr/local/bin/probe")]
    for name in ("k8sdds.local/one:1", "k8sdds.local/two:1"):
        items.append(image(name, layout.image(name, HOST_ARCH, ["/bin/probe", "sleep", name], [layer])))
    layout.finish()
    return write(folder, items)
