"""Read ssh_config files with paramiko, including `Include`, which it ignores."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from paramiko.config import SSHConfig, SSHConfigDict

from k8sdds.system.ssh.target import Target

USER_FOLDER = Path("~/.ssh")
SYSTEM_FILE = Path("/etc/ssh/ssh_config")
SYSTEM_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
MAX_INCLUDE_DEPTH = 16
_OPTION = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.+?)\s*$")


def read(target: Target) -> SSHConfig:
    """Return the configuration for a target. As in OpenSSH, the first value of an option counts.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line cannot be parsed.
        SSHException: A line cannot be parsed.
    """
    user_folder = USER_FOLDER.expanduser()
    lines = [f"{option} {value}" for option, value in target.settings().items()]
    if any("\n" in line for line in lines):
        raise ValueError("a value contains a line break")
    if target.ssh_config is not None:
        lines += _lines(target.ssh_config, user_folder)
    else:
        for path in (user_folder / "config", SYSTEM_FILE):
            if path.is_file():
                # Each file starts outside of the last Host block of the previous one.
                lines += ["Host *", *_lines(path, path.parent)]
    return SSHConfig.from_text("\n".join(lines))


def known_hosts_files(options: SSHConfigDict) -> tuple[list[Path], list[Path]]:
    """Return the known_hosts files of the user, to the first of which new keys are added, and of the system."""
    default = f"{USER_FOLDER}/known_hosts {USER_FOLDER}/known_hosts2"
    user = _paths(options.get("userknownhostsfile", default))
    system = options.get("globalknownhostsfile")
    return user, list(SYSTEM_KNOWN_HOSTS) if system is None else _paths(system)


def flag(options: SSHConfigDict, name: str) -> bool:
    """Return whether an option is `yes`."""
    return str(options.get(name, "no")).lower() in ("yes", "true")


def _paths(value: str) -> list[Path]:
    home = str(Path.home())
    words = (word.replace("%d", home) for word in shlex.split(value) if word.lower() != "none")
    # Unlike Path.expanduser, it accepts the name of a user who does not exist.
    return [Path(os.path.expanduser(word)) for word in words]


def _lines(file: Path, folder: Path, depth: int = 0, outer: str = "") -> Iterator[str]:
    """Yield the lines of a file and of the files that it includes, whose relative paths start at `folder`.

    `outer`: criteria of the block that includes this file. All blocks of this file must meet them too.
    """
    if depth > MAX_INCLUDE_DEPTH:
        raise ValueError(f"{file}: files include each other")
    block = outer
    for line in file.read_text(errors="replace").splitlines():
        match = _OPTION.match(line)
        option = match[1].lower() if match else ""
        value = match[2] if match else ""
        if option == "include":
            for word in shlex.split(value):
                for path in sorted(glob.glob(os.path.join(folder, os.path.expanduser(word)))):
                    yield from _lines(Path(path), folder, depth + 1, block)
            yield f"Match {block}" if block else "Host *"
        elif option in ("host", "match"):
            if option == "host":
                value = f"originalhost {shlex.quote(','.join(shlex.split(value)))}"
            criteria = [part for part in (outer, value) if part and part.lower() != "all"]
            block = " ".join(criteria)
            yield f"Match {block}" if outer else line
        else:
            yield line
