"""Build an image with the stand-ins on the perftest image, as perftest-images/connext does with RTI's programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from k8sdds import bundle
from k8sdds.bundle import images, oci
from k8sdds.bundle.contents import HOST_ARCH, UNPRIVILEGED
from k8sdds.middleware.connext.settings import IN_IMAGE

ROOT = Path(__file__).parents[3]
PYTHON = Path("/usr/bin/python3").resolve()
PERFTEST = "k8sdds.local/perftest-connext-stand-in:4.1"
DISCOVERY = "k8sdds.local/cloud-discovery-stand-in:1"
LIBRARY = "/opt/rti/stand-in"
CLOUD = "/opt/rti/cloud-discovery"
LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
import tests.lab.connext.cloud_stand_in
print(*{module.__file__ for module in sys.modules.values() if getattr(module, "__file__", None)}, sep="\\n")
"""


def archive(folder: Path) -> Path:
    """Build an OCI archive with both images in an empty folder."""
    own = bundle.cached_bundle((HOST_ARCH,), only_k8sdds=True)
    (base,) = images.select(own, HOST_ARCH, ["perftest"])
    layout = oci.Layout(folder / "layout")
    below = json.loads(own.file(base).read_bytes())["layers"]
    for layer in below:
        digest = layer["digest"].removeprefix("sha256:")
        (layout.blobs / digest).symlink_to((own.folder / "oci/blobs/sha256" / digest).resolve())
    layers = [{"digest": layer["digest"], "size": layer["size"]} for layer in below]
    layers.append(layout.layer(_files(folder)))
    created = [
        (PERFTEST, HOST_ARCH, layout.image(PERFTEST, HOST_ARCH, ["/opt/k8sdds/k8sdds-supervisor"], layers, UNPRIVILEGED)),
        (DISCOVERY, HOST_ARCH, layout.image(DISCOVERY, HOST_ARCH, [CLOUD], layers, UNPRIVILEGED)),
    ]  # fmt: skip
    layout.finish()
    oci.archive(layout.folder, created, folder / "images.tar")
    return folder / "images.tar"


def _files(folder: Path) -> dict[str, oci.Entry]:
    """Return the files of this machine's Python that the stand-ins load, and the stand-ins."""
    done = subprocess.run(
        [PYTHON, "-I", "-c", LOADED, ROOT], capture_output=True, text=True, check=True, cwd=ROOT
    )
    result: dict[str, oci.Entry] = {str(PYTHON): PYTHON, "/usr/bin/python3": oci.Link(PYTHON.name)}
    for path in map(Path, done.stdout.split()):
        inside = f"{LIBRARY}/{path.relative_to(ROOT)}" if path.is_relative_to(ROOT) else str(path)
        result[inside] = path
    for path in Path(f"/usr/lib/{PYTHON.name}/encodings").glob("*.py"):
        result[str(path)] = path
    output = subprocess.run(["ldd", PYTHON], capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        name, arrow, location = line.strip().partition(" => ")
        # All others are in the layer below, where they must not be replaced.
        if arrow and name.startswith("libexpat"):
            library = Path(location.split()[0])
            # Where it really is: a folder /lib in a layer would hide the link to /usr/lib.
            result[str(library.parent.resolve() / name)] = library.resolve()
    for target, module in ((IN_IMAGE, "stand_in"), (CLOUD, "cloud_stand_in")):
        script = folder / module
        script.write_text(
            f"#!/usr/bin/python3\nimport sys\nsys.path.insert(0, {LIBRARY!r})\n"
            f"from tests.lab.connext.{module} import main\nsys.exit(main())\n"
        )
        result[target] = script
    return result


if __name__ == "__main__":
    print(archive(Path(sys.argv[1])))
