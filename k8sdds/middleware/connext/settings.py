"""Which RTI PerfTest to measure with: the user's, named in the environment."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from k8sdds.middleware.connext import license as licences
from k8sdds.middleware.connext import options
from k8sdds.middleware.connext.options import Version
from k8sdds.system.errors import InputError, PrerequisiteError

PROGRAM, IMAGE, VERSION = "K8SDDS_CONNEXT_PERFTEST", "K8SDDS_CONNEXT_IMAGE", "K8SDDS_CONNEXT_VERSION"
LIBRARIES, MORE = "K8SDDS_CONNEXT_LIBRARIES", "K8SDDS_CONNEXT_OPTIONS"
IN_IMAGE = "/opt/rti/perftest_cpp"
"""Where our recipe for an image puts the program (perftest-images/connext)."""
_BANNER = re.compile(r"RTI Perftest (\d+)\.(\d+)")
ASK_S = 20


@dataclass(frozen=True)
class Settings:
    """The program as participants find it, and what it needs."""

    program: str
    version: Version
    libraries: str = ""
    """Folders of shared libraries, apart by colons."""
    licence: str = ""
    more: tuple[str, ...] = ()
    """Options of the user for all participants."""

    def environment(self) -> dict[str, str]:
        """What the clean environment of a participant gets for it."""
        found = {"LD_LIBRARY_PATH": self.libraries, licences.VARIABLE: self.licence}
        return {name: value for name, value in found.items() if value}

    def facts(self) -> dict[str, object]:
        """For campaign.json."""
        return {"program": self.program, "version": options.text(self.version), "options": list(self.more)}


def of(testbed: str) -> Settings:
    """The program for a testbed: the user's own in the lab, that of the image on a cluster."""
    return on_this_machine() if testbed == "lab" else in_image()[1]


def on_this_machine(environment: Mapping[str, str] = os.environ) -> Settings:
    """The user's own program, for the lab. PrerequisiteError where none is named, InputError where it is none."""
    named = environment.get(PROGRAM, "")
    if not named:
        raise PrerequisiteError(
            "middleware connext needs RTI's PerfTest, which k8sdds may not bring",
            f"build perftest_cpp with your Connext and set {PROGRAM} to its path (docs/connext.md)",
        )
    path = Path(named).expanduser().absolute()
    if not os.access(path, os.X_OK) or not path.is_file():
        raise InputError(f"{PROGRAM}: {path} is no program", "give the path of perftest_cpp")
    licence = licences.file(environment)
    libraries = environment.get(LIBRARIES, "")
    version = _given_version(environment) or _asked_version(path, libraries)
    return Settings(str(path), version, libraries, str(licence or ""), _more(environment, version))


def in_image(environment: Mapping[str, str] = os.environ) -> tuple[str, Settings]:
    """The image to run pods of, and the program in it. PrerequisiteError where none is named."""
    image = environment.get(IMAGE, "")
    if not image:
        raise PrerequisiteError(
            "middleware connext needs an image with RTI's PerfTest, which k8sdds may not bring",
            f"make one (perftest-images/connext) and set {IMAGE} and {VERSION} (docs/connext.md)",
        )
    version = _given_version(environment)
    if version is None:
        raise InputError(f"{VERSION} is not set", "say which PerfTest is in the image, such as 4.1")
    licences.file(environment)  # the testbed makes a Secret of it: what is wrong is told before
    libraries = environment.get(LIBRARIES, "/opt/rti/lib")
    return image, Settings(IN_IMAGE, version, libraries, licences.IN_POD, _more(environment, version))


def _given_version(environment: Mapping[str, str]) -> Version | None:
    text = environment.get(VERSION, "")
    if not text:
        return None
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", text)
    return _known((int(found[1]), int(found[2])) if found else None, f"{VERSION}={text}")


@functools.lru_cache
def _asked_version(path: Path, libraries: str) -> Version:
    """What the program says of itself in its banner."""
    environment = {"PATH": os.defpath} | ({"LD_LIBRARY_PATH": libraries} if libraries else {})
    try:
        done = subprocess.run(
            [path, "-help"], capture_output=True, timeout=ASK_S, stdin=subprocess.DEVNULL, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteError(
            f"{path} cannot be asked for its version: {error}", f"set {VERSION}"
        ) from error
    said = (done.stdout + done.stderr).decode(errors="replace")
    found = _BANNER.search(said)
    if not found:
        raise InputError(f"{path} -help does not say which PerfTest it is", f"set {VERSION}, such as 4.1")
    return _known((int(found[1]), int(found[2])), str(path))


def _known(version: Version | None, source: str) -> Version:
    if version not in options.VERSIONS:
        known = ", ".join(map(options.text, options.VERSIONS))
        raise InputError(f"{source}: k8sdds does not know this release of PerfTest", f"it knows {known}")
    return version


def _more(environment: Mapping[str, str], version: Version) -> tuple[str, ...]:
    """The user's further options, each checked against the release."""
    try:
        words = tuple(shlex.split(environment.get(MORE, "")))
    except ValueError as error:
        raise InputError(f"{MORE}: {error}") from error
    refused = options.refusal(words, version)
    if refused:
        raise InputError(f"{MORE}: {refused}")
    return words
