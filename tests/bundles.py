"""Create small bundles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from k8sdds.bundle import Bundle, oci
from k8sdds.bundle.contents import HOST_ARCH


def small(folder: Path, program: Path) -> Bundle:
    """Create a bundle with two images that share a layer, and one binary, which all contain a program."""
    folder.mkdir()
    layout = oci.Layout(folder / "oci")
    layer = layout.layer({"/bin/probe": program, "/bin/other": oci.Link("probe"), "/etc/file": b"text"})
    (folder / "bin").mkdir()
    shutil.copyfile(program, folder / "bin/probe")
    items = [{"kind": "binary", "name": "probe", "version": "1", "arch": HOST_ARCH, "path": "bin/probe",
              "sha256": oci.file_sha256(program), "size_bytes": 1, "target": "/usr/local/bin/probe"}]  # fmt: skip
    for name in ("k8sdds.local/one:1", "k8sdds.local/two:1"):
        digest = layout.image(name, HOST_ARCH, ["/bin/probe", "sleep", name], [layer])
        items.append({"kind": "image", "name": name, "version": "1", "arch": HOST_ARCH,
                      "path": f"oci/blobs/sha256/{digest}", "sha256": digest, "size_bytes": 1})  # fmt: skip
    layout.finish()
    index = {
        "format": 1,
        "name": "small",
        "kubernetes": "0",
        "toolchain": "",
        "arches": [HOST_ARCH],
        "items": items,
    }
    (folder / "bundle.json").write_text(json.dumps(index))
    return Bundle.open(folder)
