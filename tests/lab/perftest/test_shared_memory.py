"""Test which namespaces and user ids keep participants from sharing memory, with a `/dev/shm` for both."""

import os
import subprocess

import pytest
from perftest_tools import end_all

from k8sdds.campaign.memory_path import found_peer, sent_by_tcp

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="requires root for other user ids and namespaces")

SHARED = ("-transport", "SHMEM", "-dataLen", 65536, "-discoveryTimeout", 5, "-peer", "127.0.0.1")
MIDDLEWARES = pytest.mark.parametrize("middleware", ["fastdds", "zenoh"])


@pytest.fixture
def folder():
    """Yield a command prefix that gives each process the same /dev/shm, which is empty at first."""
    mount = "mount -t tmpfs -o mode=1777 none /dev/shm && echo && exec sleep infinity"
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", mount], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"\n"
        yield ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt")
        holder.kill()


def as_user(number: int) -> tuple[str, ...]:
    """Return a command prefix that runs a program as a user, who may lock memory."""
    capability = ("--inh-caps", "+ipc_lock", "--ambient-caps", "+ipc_lock")
    return ("setpriv", "--reuid", str(number), "--regid", str(number), "--clear-groups", *capability)


@MIDDLEWARES
@pytest.mark.parametrize("own", [("--ipc",), ("--pid", "--fork", "--kill-child"), ("--ipc", "--uts")])
def test_other_namespaces_do_not_matter(perftest, folder, middleware, own):
    within = (*folder, "unshare", *own)
    publisher, subscriber = perftest.pair(*SHARED, middleware=middleware, within=within)
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0


@MIDDLEWARES
def test_one_user_shares_memory(perftest, folder, middleware):
    within = (*folder, *as_user(1000))
    publisher, subscriber = perftest.pair(*SHARED, middleware=middleware, within=within)
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0


@MIDDLEWARES
@pytest.mark.parametrize("user", [0, 1000])
def test_other_users_do_not_share_memory(perftest, folder, middleware, user):
    """Fast DDS finds the peer, but no sample arrives; Zenoh sends by TCP."""
    options = {"middleware": middleware}
    subscriber = perftest.sub(*SHARED, within=(*folder, *as_user(user)), **options)
    publisher = perftest.pub(*SHARED, within=(*folder, *as_user(2000)), **options)
    fails = (3, 3) if middleware == "fastdds" else (6, 4)
    end_all(subscriber, publisher, codes=fails)
    reasons = [process.k8sdds["exit"]["reason"] for process in (subscriber, publisher)]
    found = found_peer if middleware == "fastdds" else sent_by_tcp
    assert any(map(found, reasons)), reasons
