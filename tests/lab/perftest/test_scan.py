"""Test scans: one start of the processes, several lengths in turn, one result for each."""

from __future__ import annotations

import csv
import json
import re
import subprocess

import pytest
from perftest_tools import Process, sh, tool

LENGTHS = (64, 20_000, 1000)
SCAN = ("-scan", ":".join(map(str, LENGTHS)))


def results(process: Process) -> list[dict]:
    process.end()
    return [json.loads(line) for line in process.out.splitlines()]


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw"])
def test_each_length_has_a_result(perftest, middleware: str) -> None:
    publisher, subscriber = perftest.pair(
        pub=(*SCAN, "-numIter", 50, "-pubRate", "1000:sleep"), middleware=middleware, time=30
    )
    for process in (publisher, subscriber):
        documents = results(process)
        assert [document["perftest"][0]["length"] for document in documents] == list(LENGTHS)
        assert [document["k8sdds"]["sent"] for document in documents] == [50] * 3
        assert [document["k8sdds"]["exit"]["code"] for document in documents] == [0] * 3
        assert process.phases() == "ME" * 3
    assert [document["k8sdds"]["received"] for document in results(subscriber)] == [50] * 3


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
    assert [process.end() for process in (*publishers, *subscribers)] == [0] * 4
    for subscriber, file in zip(subscribers, files, strict=True):
        assert [document["k8sdds"]["received"] for document in results(subscriber)] == [80] * 3
        assert sum(int(row["samples"]) for row in csv.DictReader(file.open())) == 3 * 80


def test_a_scan_of_latencies_as_tables(perftest) -> None:
    publisher, subscriber = perftest.pair(pub=(*SCAN, "-latencyTest", "-numIter", 20), output="csv", time=30)
    for process, columns in ((publisher, 10), (subscriber, 6)):
        rows = [line.split(",") for line in process.out.splitlines() if line[:19].strip().isdigit()]
        assert [int(row[0]) for row in rows if len(row) == columns] == list(LENGTHS)


def test_batches_only_where_two_samples_fit(perftest) -> None:
    publisher, subscriber = perftest.pair(pub=(*SCAN, "-batchSize", 4000))
    assert [document["k8sdds"]["qos"]["batch_bytes"] for document in results(publisher)] == [4000, 0, 4000]
    assert [document["k8sdds"]["lost"] for document in results(subscriber)] == [0] * 3


def test_a_middleware_that_closes_slowly_does_not_end_a_scan(perftest, tmp_path) -> None:
    """A preloaded function delays the first call that closes a part of the middleware, as a busy machine does."""
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    [loaded] = re.findall(r"libddsc\S*(?= =>)", sh(f"ldd {tool('libk8sdds-perftest-cyclonedds.so')}"))
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\n"
        "int dds_delete(int entity) {\n"
        "  static int calls;\n"
        f'  int (*real)(int) = dlsym(dlopen("{loaded}", RTLD_NOW | RTLD_NOLOAD), "dds_delete");\n'
        "  if (!calls++) usleep(3500000);\n"
        "  return real(entity);\n}\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    subscriber = perftest.sub()
    publisher = perftest.pub("-scan", "64:128", "-numIter", 20, time=30, env={"LD_PRELOAD": str(library)})
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert [document["k8sdds"]["received"] for document in results(subscriber)] == [20, 20]


def test_a_length_that_fails_ends_the_scan(perftest) -> None:
    publisher = perftest.pub(*SCAN, "-discoveryTimeout", 0.5)
    assert publisher.end() == 3
    assert len(publisher.out.splitlines()) == 1
