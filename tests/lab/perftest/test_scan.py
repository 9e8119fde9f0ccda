"""Test scans: one start of the processes, several lengths in turn, one result for each."""

from __future__ import annotations

import csv
import json
import re

import pytest
from perftest_tools import Process, end_all, preload, sh, tool

LENGTHS = (64, 20_000, 1000)
SCAN = ("-scan", ":".join(map(str, LENGTHS)))


def results(process: Process, key: str) -> list:
    """Return a value of each result of a process."""
    process.end()
    return [json.loads(line)["k8sdds"][key] for line in process.out.splitlines()]


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw", "zenoh"])
def test_each_length_has_a_result(perftest, middleware: str) -> None:
    publisher, subscriber = perftest.pair(
        pub=(*SCAN, "-numIter", 50, "-pubRate", "1000:sleep"), middleware=middleware, time=30
    )
    for process in (publisher, subscriber):
        tables = [json.loads(line)["perftest"][0] for line in process.out.splitlines()]
        assert [table["length"] for table in tables] == list(LENGTHS)
        assert results(process, "sent") == [50] * 3
        assert [result["code"] for result in results(process, "exit")] == [0] * 3
        assert process.phases() == "ME" * 3
    assert results(subscriber, "received") == [50] * 3


def test_all_participants_scan_together(perftest, tmp_path) -> None:
    files = [tmp_path / f"{i}.csv" for i in range(2)]
    subscribers = [
        perftest.sub("-sidMultiSubTest", i, "-numPublishers", 2, "-timelineFile", file)
        for i, file in enumerate(files)
    ]
    publishers = [
        perftest.pub(*SCAN, "-pidMultiPubTest", i, "-numSubscribers", 2, "-numIter", 40, time=30)
        for i in range(2)
    ]
    end_all(*publishers, *subscribers)
    for subscriber, file in zip(subscribers, files, strict=True):
        assert results(subscriber, "received") == [80] * 3
        assert sum(int(row["samples"]) for row in csv.DictReader(file.open())) == 3 * 80


def test_a_scan_of_latencies_as_tables(perftest) -> None:
    publisher, subscriber = perftest.pair(pub=(*SCAN, "-latencyTest", "-numIter", 20), output="csv", time=30)
    for process, columns in ((publisher, 10), (subscriber, 6)):
        rows = [line.split(",") for line in process.out.splitlines() if line[:19].strip().isdigit()]
        assert [int(row[0]) for row in rows if len(row) == columns] == list(LENGTHS)


def test_batches_only_where_two_samples_fit(perftest) -> None:
    publisher, subscriber = perftest.pair(pub=(*SCAN, "-batchSize", 4000))
    assert [qos["batch_bytes"] for qos in results(publisher, "qos")] == [4000, 0, 4000]
    assert results(subscriber, "lost") == [0] * 3


def test_a_middleware_that_closes_slowly_does_not_end_a_scan(perftest, tmp_path) -> None:
    """A preloaded function delays the first call that closes a part of the middleware, as a busy machine does."""
    [loaded] = re.findall(r"libddsc\S*(?= =>)", sh(f"ldd {tool('libk8sdds-perftest-cyclonedds.so')}"))
    source = (
        "#include <unistd.h>\n"
        "int dds_delete(int entity) {\n"
        "  static int calls;\n"
        f'  int (*real)(int) = dlsym(dlopen("{loaded}", RTLD_NOW | RTLD_NOLOAD), "dds_delete");\n'
        "  if (!calls++) usleep(3500000);\n"
        "  return real(entity);\n}\n"
    )
    subscriber = perftest.sub()
    scan = ("-scan", "64:128", "-numIter", 20)
    publisher = perftest.pub(*scan, time=30, env=preload(tmp_path, source))
    end_all(publisher, subscriber)
    assert results(subscriber, "received") == [20, 20]


def test_a_length_that_fails_ends_the_scan(perftest) -> None:
    publisher = perftest.pub(*SCAN, "-discoveryTimeout", 0.5)
    assert publisher.end() == 3
    assert len(publisher.out.splitlines()) == 1
