"""Every grammar of PerfTest, both sides, whole and damaged."""

from __future__ import annotations

import pytest

from k8sdds.perftest import log
from tests.unit.importing import logs

LATENCIES = {
    "3.0 text": logs.TEXT_LATENCY,
    "legacy": logs.LEGACY_LATENCY,
    "3.1 csv": logs.csv_latency("us", "Length (Bytes)"),
    "4.3 csv": logs.csv_latency(),
    "4.3 csv, micro sign": logs.csv_latency("µs"),
    "4.3 csv, no CPU": logs.csv_latency(cpu=False),
    "4.3 csv, serialization": logs.csv_latency(more=True),
    "3.1 csv, nanoseconds": logs.csv_latency("ns", "Length (Bytes)"),
    "json": logs.JSON_LATENCY,
    "json as C++ breaks it": logs.BROKEN_JSON_LATENCY,
}
THROUGHPUTS = {
    "3.0 text": logs.TEXT_THROUGHPUT,
    "legacy": logs.LEGACY_THROUGHPUT,
    "3.1 csv": logs.csv_throughput("Ave", "Length (Bytes)"),
    "4.3 csv": logs.csv_throughput(),
    "4.3 csv, no CPU": logs.csv_throughput(cpu=False),
    "json": logs.JSON_THROUGHPUT,
    "json as C++ breaks it": logs.BROKEN_JSON_THROUGHPUT,
}


def read(text: str) -> log.Log:
    return log.read(text.encode())


@pytest.mark.parametrize(
    ("text", "kind", "expected", "stderr"),
    [
        *((text, "latency", logs.LATENCY, (logs.configuration(True) + "Sending data ...\n", logs.END))
          for text in LATENCIES.values()),
        *((text, "latency", logs.LATENCY, ("", "")) for text in LATENCIES.values()),
        *((text, "throughput", logs.THROUGHPUT, (logs.configuration(False), logs.END)) for text in THROUGHPUTS.values()),
    ],
    ids=[*LATENCIES, *(f"{name}, alone" for name in LATENCIES), *THROUGHPUTS],
)  # fmt: skip
def test_every_grammar_is_read(text, kind, expected, stderr):
    before, after = stderr
    parsed = read(before + text + after)
    assert parsed.problems == () and not parsed.truncated and parsed.ended is bool(after)
    (result,) = parsed.results
    assert (result.kind, result.payload_bytes) == (kind, 1024)
    assert {key: result.values[key] for key in expected} == pytest.approx(expected)
    assert parsed.role == ("publisher" if kind == "latency" else "subscriber")


@pytest.mark.parametrize("text", [*LATENCIES.values(), *THROUGHPUTS.values()])
def test_stderr_between_the_lines(text):
    """Complete lines of stderr anywhere in the output change nothing."""
    mixed = "\n".join(f"{line}\nTest ended." for line in text.split("\n")[:-1]) + "\n"
    assert [r.values for r in read(mixed).results] == [r.values for r in read(text).results] != []


@pytest.mark.parametrize("text", [*LATENCIES.values(), *THROUGHPUTS.values()])
def test_an_incomplete_last_line_is_never_a_row(text):
    whole = text.rstrip("\n")
    for end in range(len(whole)):
        parsed = read(whole[:end])
        if "{" not in text:
            assert parsed.results == (), whole[:end][-60:]
        elif parsed.results:
            # The last brace of JSON marks its end.
            assert whole[:end].rstrip().endswith("}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (logs.TEXT_LATENCY.replace("90%     57", "90%     87"), "above"),
        (logs.TEXT_LATENCY.replace("Ave     54", "Ave    954"), "mean"),
        (logs.TEXT_THROUGHPUT.replace("741.4", "747.4"), "are not 747.4"),
        (logs.TEXT_THROUGHPUT.replace("90500", "9050"), "are not 741.4"),
        (logs.TEXT_LATENCY.replace("Std    3.0", "Std   -3.0"), "negative"),
        (logs.TEXT_THROUGHPUT + logs.TEXT_THROUGHPUT.replace("181000", "181001"), "different summaries"),
        (logs.configuration(False) + logs.csv_throughput().replace("90500, ", "90500,Test ended.\n "), ""),
    ],
)
def test_inconsistent_numbers_are_a_problem(text, problem):
    assert problem in read(text).problems[0]


def test_a_summary_may_be_repeated_and_rows_without_headers_need_the_role():
    assert read(logs.TEXT_THROUGHPUT * 2).problems == ()
    row = "1024, 181000, 90500, 741.4, 3, 0.01\n"
    assert read(row).results == (), "six fields may also be an interval of latencies"
    assert read(logs.configuration(False) + row).results[0].values["samples"] == 181000


def test_rows_contain_only_numbers():
    for word in ("-nan", "inf", "1e5", "0x10", "٣"):
        assert read(logs.TEXT_THROUGHPUT.replace("90500", word)).results == ()
        assert read(logs.csv_throughput().replace("90500", word)).results == ()
    assert read('"length":1024,\n"summary":{"packets":NaN}\n}\n').results == ()


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\xff\xfe" * 50, b"[" * 200_000, b'"length"' + b"[" * 200_000,
                                  b'"length":' + b"9" * 9000, b"9" * 9000 + b",1\n"])  # fmt: skip
def test_other_files_are_not_logs(data):
    parsed = log.read(data)
    assert parsed.results == ()


def test_settings():
    kind = "UDPv4 & SHMEM (taken from QoS XML file)"
    parsed = read(logs.configuration(True, more=logs.SECURE_3, kind=kind, peers=4)).settings
    expected = {
        "mode": "latency", "role": "publisher", "identity": 0, "discovers": (4, "subscribers"),
        "reliability": "reliable", "transport": "unicast", "payloads": (1024,), "batch_bytes": 0, "rate": 0,
        "duration_s": 30, "receive_mode": "listener", "qos": "perftest_qos_profiles", "kind": "UDPv4 & SHMEM",
        "product": ("connext", "7.3.0"), "version": "4.3.0",
    }  # fmt: skip
    assert {name: getattr(parsed, name) for name in expected} == expected
    unsupported = "False (Multicast is not supported for TCP)"
    assert read(logs.configuration(True, kind="TCP", multicast=unsupported)).settings.transport == "unicast"
    failed = read(
        "RTI Perftest 3.1.0 5c0ba94 (RTI Connext DDS 6.0.1)\n[Error]: x\ncommand terminated with exit code 255\n"
    )
    assert (failed.exit_code, failed.errors, failed.understood) == (255, ("[Error]: x",), True)


@pytest.mark.parametrize(
    ("more", "kind", "level"),
    [
        ("", "UDPv4", "none"),
        (logs.SECURE_3, "UDPv4", "SignEncryptData"),
        (logs.SECURE_4, "UDPv4", "SignEncryptData"),
        (logs.SECURE_3.replace("SignEncryptData", "Mine"), "UDPv4", "Sign+EncryptData"),
        (logs.SECURE_4.replace("SignEncryptData", "Mine"), "UDPv4", "signed_PerftestGovernance_Mine"),
        ("", "TLS", "TLS"),
        ("", "DTLS", "DTLS"),
        ("", "TLSv4", "TLS"),
    ],
)
def test_security(more, kind, level):
    assert read(logs.configuration(True, more=more, kind=kind)).settings.security == level
