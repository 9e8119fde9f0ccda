"""Find archives of the images of networks, for tests of their real daemons.

K8SDDS_TEST_IMAGE_NETWORK, such as K8SDDS_TEST_IMAGE_KUBE_ROUTER, names a file of `docker save` or an OCI archive. Several
files are separated by colons.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8sdds.deploy import bundled_networks
from tests.conftest import IMAGES_MISSING


def options(*networks: str) -> list[str]:
    """Return the options of `bundle create` that name the archives of networks. Skips the test if one is missing."""
    found = []
    for network in networks:
        variable = f"K8SDDS_TEST_IMAGE_{network.upper().replace('-', '_')}"
        if not os.environ.get(variable):
            pytest.skip(f"{IMAGES_MISSING}: set {variable} to an archive of the image of {network}")
        found += [f"--image={network}={file}" for file in os.environ[variable].split(":")]
    return found


def of(network: str) -> dict[str, list[Path]]:
    """Return the archives of a network by reference of the image. Skips the test if they are missing."""
    return bundled_networks.archives(None, (option.removeprefix("--image=") for option in options(network)))
