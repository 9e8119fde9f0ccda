"""Find the user's RTI PerfTest, which environment variables name."""

from __future__ import annotations

import base64
import functools
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.middleware.connext import options
from k8sdds.middleware.connext.options import Version
from k8sdds.system.errors import InputError, PrerequisiteError

PROGRAM, IMAGE, VERSION = "K8SDDS_CONNEXT_PERFTEST", "K8SDDS_CONNEXT_IMAGE", "K8SDDS_CONNEXT_VERSION"
LIBRARIES, MORE = "K8SDDS_CONNEXT_LIBRARIES", "K8SDDS_CONNEXT_OPTIONS"
IN_IMAGE = "/opt/rti/perftest_cpp"
"""Path of the program in images that are built with perftest-images/connext."""
LICENSE = "RTI_LICENSE_FILE"
"""The environment variable of RTI with the path of the license file."""
SECRET = "rti-license"
"""With the spelling under which users who may not create Secrets have created it."""
LICENSE_KEY = "rti_license.dat"
LICENSE_FOLDER = "/run/secrets/rti"
LICENSE_IN_POD = f"{LICENSE_FOLDER}/{LICENSE_KEY}"
_BANNER = re.compile(r"RTI Perftest (\d+)\.(\d+)")
VERSION_TIMEOUT_S = 20


@dataclass(frozen=True)
class Settings:
    """The program as participants find it, and what it requires."""

    program: str
    version: Version
    libraries: str = ""
    """Folders of shared libraries, separated by colons."""
    license: str = ""
    user_options: tuple[str, ...] = ()
    """The user's further options for all participants."""

    def environment(self) -> dict[str, str]:
        """Return the variables that the clean environment of a participant has in addition."""
        values = {"LD_LIBRARY_PATH": self.libraries, LICENSE: self.license}
        return {name: value for name, value in values.items() if value}

    def facts(self) -> dict[str, object]:
        """Return the facts for campaign.json."""
        return {
            "program": self.program,
            "version": options.version_text(self.version),
            "options": list(self.user_options),
        }


def of(testbed: str) -> Settings:
    """Return the PerfTest of a testbed: the user's own program in the lab, the program in the image on a cluster."""
    return on_this_machine() if testbed == "lab" else in_image()[1]


def on_this_machine(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the user's own program, for the lab."""
    program = environment.get(PROGRAM, "")
    if not program:
        raise PrerequisiteError(
            "middleware connext needs RTI's PerfTest, which k8sdds may not distribute",
            f"build perftest_cpp with your Connext and set {PROGRAM} to its path (k8sdds docs connext)",
        )
    path = Path(program).expanduser().absolute()
    if not os.access(path, os.X_OK) or not path.is_file():
        raise InputError(f"{PROGRAM}: {path} is not a program", "set it to the path of perftest_cpp")
    own_license = license_file(environment)
    libraries = environment.get(LIBRARIES, "")
    version = _given_version(environment) or _printed_version(path, libraries)
    return Settings(
        str(path), version, libraries, str(own_license or ""), _user_options(environment, version)
    )


def in_image(environment: Mapping[str, str] = os.environ) -> tuple[str, Settings]:
    """Return the image of the participants' pods, and the program in it."""
    image = environment.get(IMAGE, "")
    if not image:
        raise PrerequisiteError(
            "middleware connext needs an image with RTI's PerfTest, which k8sdds may not distribute",
            f"build one and set {IMAGE} and {VERSION} (k8sdds docs connext)",
        )
    version = _given_version(environment)
    if version is None:
        raise InputError(f"{VERSION} is not set", "set it to the release in the image, such as 4.1")
    license_file(environment)  # fail here rather than when the testbed creates the Secret
    libraries = environment.get(LIBRARIES, "/opt/rti/lib")
    return image, Settings(IN_IMAGE, version, libraries, LICENSE_IN_POD, _user_options(environment, version))


def _given_version(environment: Mapping[str, str]) -> Version | None:
    text = environment.get(VERSION, "")
    return _supported(re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", text), f"{VERSION}={text}") if text else None


@functools.lru_cache
def _printed_version(path: Path, libraries: str) -> Version:
    """Return the version in the banner that the program prints."""
    environment = {"PATH": os.defpath} | ({"LD_LIBRARY_PATH": libraries} if libraries else {})
    try:
        done = subprocess.run(
            [path, "-help"],
            capture_output=True,
            timeout=VERSION_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteError(f"cannot run {path} for its version: {error}", f"set {VERSION}") from error
    output = (done.stdout + done.stderr).decode(errors="replace")
    match = _BANNER.search(output)
    if not match:
        raise InputError(f"{path} -help does not print its release", f"set {VERSION}, such as 4.1")
    return _supported(match, str(path))


def _supported(match: re.Match[str] | None, source: str) -> Version:
    version = (int(match[1]), int(match[2])) if match else None
    if version not in options.VERSIONS:
        known = ", ".join(map(options.version_text, options.VERSIONS))
        raise InputError(
            f"{source}: k8sdds does not support this release of PerfTest", f"it supports {known}"
        )
    return version


def _user_options(environment: Mapping[str, str], version: Version) -> tuple[str, ...]:
    """Return the user's further options after a check that the release has them."""
    try:
        args = tuple(shlex.split(environment.get(MORE, "")))
    except ValueError as error:
        raise InputError(f"{MORE}: {error}") from error
    refused = options.refusal(args, version)
    if refused:
        raise InputError(f"{MORE}: {refused}")
    return args


# -- the license, whose content is only in the Secret and in memory -----------------------------------------


def license_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's license, or None if the environment names none."""
    name = environment.get(LICENSE, "")
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(f"{LICENSE}: there is no file {name}", "set it to the path of your license")
    return path


def license_secret(namespace: str, content: bytes) -> dict[str, Any]:
    """Return the Secret for a campaign's own namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET,
            "namespace": namespace,
            "labels": {versions.MANAGED_BY_LABEL: versions.MANAGED_BY},
        },
        "immutable": True,
        "type": "Opaque",
        "data": {LICENSE_KEY: base64.b64encode(content).decode()},
    }


def license_parts() -> dict[str, Any]:
    """Return the volume of the license and its mount in the participant's container.

    The volume is optional, because some builds of Connext need no license: without the Secret its folder is
    empty.
    """
    source = {"secretName": SECRET, "optional": True, "defaultMode": 0o440}
    return {
        "volumes": [{"name": "license", "secret": source}],
        "volumeMounts": [{"name": "license", "mountPath": LICENSE_FOLDER, "readOnly": True}],
    }
