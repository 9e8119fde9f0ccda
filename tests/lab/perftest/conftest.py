"""Provide fixtures for the tests of the perftest program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from perftest_tools import Perftest, domains, sh


@pytest.fixture
def perftest() -> Iterator[Perftest]:
    perftest = Perftest(next(domains))
    yield perftest
    for process in perftest.processes:
        process.kill()


@pytest.fixture
def link() -> Iterator[tuple[str, str]]:
    """Connect two network namespaces: eth0 has 10.99.0.1 in the first and 10.99.0.2 in the second."""
    if os.geteuid() != 0:
        pytest.skip("requires root for network namespaces")
    names = (f"pt-{os.getpid()}-a", f"pt-{os.getpid()}-b")
    try:
        for name in names:
            sh(f"ip netns add {name} && ip -n {name} link set lo up")
        sh(f"ip -n {names[0]} link add eth0 type veth peer name eth0 netns {names[1]}")
        for i, name in enumerate(names):
            sh(f"ip -n {name} addr add 10.99.0.{i + 1}/24 dev eth0 && ip -n {name} link set eth0 up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
