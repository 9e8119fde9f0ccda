"""Write the licenses of the crates that the programs contain, with their texts, from what cargo has downloaded.

Run it after each change of Cargo.lock: crate_licenses.py
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

CRATE = Path(__file__).parents[1] / "perftest-images/perftest/middleware/zenoh"
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
HEADER = """\
The programs libk8sdds-perftest-zenoh.so and zenohd contain these Rust crates: name, version, and license as an SPDX
expression. Crates that offer Apache-2.0, the license of k8sdds, are used under it. The texts of the other licenses
follow, each after the crates that it belongs to.
"""
OWN = "Apache-2.0"
FILES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")


def main() -> None:
    """Write the file `LICENSES` next to Cargo.lock."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    crates = linked()
    owners: dict[str, list[str]] = {}
    originals: dict[str, str] = {}
    for crate, license in crates.items():
        names = ("NOTICE",) if OWN in re.split(r" OR |/", license) else FILES
        (folder,) = (cargo / "registry/src").glob(f"*/{crate.replace(' ', '-')}")
        for text in texts(folder, names):
            key = " ".join(text.split())
            originals.setdefault(key, text)
            owners.setdefault(key, []).append(crate)
    rule = "\n" + 100 * "-" + "\n"
    parts = [f"{rule}{', '.join(names)}{rule}\n{originals[key]}\n" for key, names in owners.items()]
    table = "".join(f"{crate}: {license}\n" for crate, license in crates.items())
    (CRATE / "LICENSES").write_text("\n".join([HEADER, table, *parts]))


def linked() -> dict[str, str]:
    """Return the license of each crate that is linked into the programs, by its name and version."""
    found: dict[str, str] = {}
    for target in TARGETS:
        argv = [
            "cargo",
            "tree",
            "--locked",
            "--quiet",
            "--package=k8sdds_zenoh",
            "--package=zenohd",
            f"--target={target}",
        ]
        argv += ["--edges=normal,no-proc-macro", "--prefix=none", "--no-dedupe", "--format={p}|{l}"]
        done = subprocess.run(argv, cwd=CRATE, stdout=subprocess.PIPE, text=True, check=True)
        lines = re.findall(r"^(\S+) v(\S+)\|(.+)$", done.stdout, re.MULTILINE)
        found |= {f"{name} {version}": license.strip() for name, version, license in lines}
    return dict(sorted(found.items()))


def texts(folder: Path, names: tuple[str, ...]) -> list[str]:
    """Return the texts of a crate's files with these beginnings of their names."""
    files = sorted(
        path for path in folder.iterdir() if path.name.upper().startswith(names) and path.is_file()
    )
    return ["\n".join(line.rstrip() for line in path.read_text().strip().splitlines()) for path in files]


if __name__ == "__main__":
    main()
