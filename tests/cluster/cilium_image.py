"""Build an archive of Cilium's image from its Go module, with the BPF sources in it, and from Debian packages."""

from __future__ import annotations

from pathlib import Path

from k8sdds.bundle import debian, golang, oci
from k8sdds.bundle.contents import BASE_PACKAGES, HOST_ARCH, Program
from k8sdds.system import debian_release
from k8sdds.system.paths import cache_folder

VERSION, MODULE = "1.18.2", "github.com/cilium/cilium"
IMAGE = f"quay.io/cilium/cilium:v{VERSION}"
PROGRAMS = {
    "/usr/bin/cilium-agent": "daemon", "/opt/cni/bin/cilium-cni": "plugins/cilium-cni",
}  # fmt: skip
"""Path in the image, and package of the module."""
COMPILER = "19"
"""LLVM of Debian 12. The agent compiles its BPF programs while it runs, and requires LLVM 18.1 or later."""
SOURCES = "/var/lib/cilium/bpf"
LIBRARIES = (
    "clang-cpp",
    "LLVM",
    "z3",
    "edit",
    "xml2",
    "icudata",
    "icuuc",
    "lzma",
    "bsd",
    "md",
    "ffi",
    "tinfo",
    "zstd",
)

SHELL: dict[str, oci.Entry] = {
    **{f"/bin/{name}": oci.Link("busybox") for name in ("sh", "cp", "mv")},
    **{
        f"/usr/sbin/{family}{rest}": oci.Link("xtables-nft-multi")
        for family in ("iptables", "ip6tables")
        for rest in ("", "-save", "-restore")
    },
}
"""Commands that the packages do not contain."""


def archive(folder: Path) -> Path:
    """Return an archive of the image that the manifest of k8sdds names."""
    layout, release = oci.Layout(folder / "layout"), debian_release.running("images")
    base = debian.archive(release, HOST_ARCH, BASE_PACKAGES, print)
    compiler = debian.archive(release, HOST_ARCH, (*BASE_PACKAGES, f"clang-{COMPILER}"), print, "Cilium")
    only = (f"usr/lib/llvm-{COMPILER}/bin/clang", *(f"*/lib{name}*.so*" for name in LIBRARIES))
    layers = [
        layout.base_layer(base, SHELL), layout.base_layer(compiler, {}, base, only), layout.layer(files()),
    ]  # fmt: skip
    digest = layout.image(IMAGE, HOST_ARCH, ("/usr/bin/cilium-agent",), layers)
    oci.archive(folder / "layout", [(IMAGE, HOST_ARCH, digest)], folder / "cilium.tar")
    return folder / "cilium.tar"


def files() -> dict[str, oci.Entry]:
    """Return the layer of Cilium itself: its programs, and the sources that the agent compiles."""
    own = str(Path(__file__).parent / "cilium")
    version = ((f"{MODULE}/pkg/version.ciliumVersion", VERSION),)
    entries: dict[str, oci.Entry] = {
        path: golang.build(Program(path.rpartition("/")[2], VERSION, own, f"{MODULE}/{package}", version), HOST_ARCH, print)
        for path, package in PROGRAMS.items()
    }  # fmt: skip
    sources = cache_folder() / "go" / "mod" / f"{MODULE}@v{VERSION}" / "bpf"
    for path in sorted(sources.rglob("*.[ch]")):
        entries[f"{SOURCES}/{path.relative_to(sources)}"] = path.read_bytes()
    return entries | {"/usr/bin/clang": oci.Link(f"../lib/llvm-{COMPILER}/bin/clang")}
