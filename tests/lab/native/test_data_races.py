"""Test which reports of ThreadSanitizer are left out, with shortened reports of real runs."""

from pathlib import Path

import pytest
from data_races import reports

BY_LIBRARY = """\
    #0 memcpy ../../sanitizer_common_interceptors.inc:827 (libtsan.so.2+0x5dda6)
    #1 <null> <null> (libddsc.so.0debian+0x47a3a)
    #2 k8sdds::CycloneDds::write middleware/cyclonedds.cpp:290 (libk8sdds-perftest-cyclonedds.so+0x1d842)
"""
IN_CALLBACK = """\
    #0 pthread_mutex_lock ../../sanitizer_common_interceptors.inc:4324 (libtsan.so.2+0x558e1)
    #1 k8sdds::Subscriber::on_sample src/subscriber.cpp:10 (k8sdds-perftest+0x8e714)
    #2 ddsrt_cond_wait <null> (libddsc.so.0debian+0xdac28)
"""
BY_RECEIVE_LOCK = """\
    #0 pthread_mutex_lock ../../sanitizer_common_interceptors.inc:4324 (libtsan.so.2+0x558e1)
    #1 __gthread_mutex_lock /usr/include/c++/12/bits/gthr-default.h:749 (libk8sdds-perftest-fastdds.so+0x12d55)
    #2 std::mutex::lock() /usr/include/c++/12/bits/std_mutex.h:100 (libk8sdds-perftest-fastdds.so+0x12d55)
    #3 k8sdds::ReceiveLock::ReceiveLock(std::mutex&, bool) middleware/common.h:53 (libk8sdds-perftest-fastdds.so+0x12d55)
    #4 take middleware/fastdds.cpp:369 (libk8sdds-perftest-fastdds.so+0x12d55)
"""
CONNECT = """\
    #0 connect ../../tsan/tsan_interceptors_posix.cpp:1724 (libtsan.so.2+0x4bab8)
    #1 k8sdds::Socket::connect_to middleware/raw_sockets.cpp:72 (libk8sdds-perftest-raw.so+0x15641)
"""
RECEIVE = """\
    #0 recvmmsg ../../sanitizer_common_interceptors.inc:3085 (libtsan.so.2+0x5cf19)
    #1 k8sdds::RawReceiver::receive middleware/raw_receiver.cpp:38 (libk8sdds-perftest-raw.so+0x10218)
"""
CLOSE = """\
    #0 close ../../tsan/tsan_interceptors_posix.cpp:1782 (libtsan.so.2+0x4c0d8)
    #1 k8sdds::Socket::~Socket middleware/raw_sockets.cpp:40 (libk8sdds-perftest-raw.so+0x15641)
"""
CREATION = f"""
  Location is heap block of size 424 at 0x7b4c00016a40 allocated by thread T4:
{BY_LIBRARY}
  Thread T7 'recv' (tid=5795, running) created by main thread at:
{BY_LIBRARY}
SUMMARY: ThreadSanitizer: here
==================
"""


def race(first: str, second: str) -> str:
    return f"""\
==================
WARNING: ThreadSanitizer: data race (pid=1)
  Write of size 8 at 0x7ffff1b89ba8 by thread T7:
{first}
  Previous read of size 1 at 0x7ffff1b89baf by thread T4:
{second}{CREATION}"""


def race_of_socket(first: str, second: str) -> str:
    return race(first, second).replace(
        "Location is heap block of size 424", "Location is file descriptor 4", 1
    )


def cycle(first: str, second: str, thread: str = "T5") -> str:
    return f"""\
==================
WARNING: ThreadSanitizer: lock-order-inversion (potential deadlock) (pid=1)
  Cycle in lock order graph: M1 (0x000000000000) => M2 (0x000000000000) => M1

  Mutex M2 acquired here while holding mutex M1 in thread T5:
{first}
  Mutex M1 acquired here while holding mutex M2 in thread {thread}:
{second}{CREATION}"""


@pytest.mark.parametrize(
    ("report", "kept"),
    [
        (race(BY_LIBRARY, IN_CALLBACK), False),
        (race(IN_CALLBACK, BY_LIBRARY), False),
        (race(IN_CALLBACK, IN_CALLBACK), True),
        (cycle(BY_LIBRARY, BY_LIBRARY), False),
        (cycle(IN_CALLBACK, BY_LIBRARY), True),
        (cycle(BY_RECEIVE_LOCK, BY_LIBRARY), False),
        (cycle(BY_RECEIVE_LOCK, BY_LIBRARY, thread="T6"), True),
        (cycle(BY_RECEIVE_LOCK, IN_CALLBACK), True),
        (race(BY_RECEIVE_LOCK, IN_CALLBACK), True),
        (race_of_socket(RECEIVE, CONNECT), False),
        (race_of_socket(RECEIVE, CLOSE), True),
        (race(RECEIVE, CONNECT), True),
    ],
)
def test_only_what_a_library_does_is_left_out(tmp_path: Path, report: str, kept: bool) -> None:
    (tmp_path / "report.1").write_text(report + race(BY_LIBRARY, BY_LIBRARY))
    (tmp_path / "report.2").write_text(report)
    assert len(reports(tmp_path)) == 2 * kept
