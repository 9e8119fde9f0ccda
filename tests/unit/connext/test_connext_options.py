"""Test the options of each release of RTI PerfTest."""

from __future__ import annotations

import pytest

from k8sdds.middleware.connext import options


@pytest.mark.parametrize(
    ("args", "version", "role", "message"),
    [
        ("-latencyFile f", (4, 0), "publisher", "4.0 does not have it, it came with 4.1: percentiles only"),
        ("-latencyFile f", (4, 1), "publisher", None),
        ("-latencyFile f", (4, 1), "subscriber", "only for the publisher"),
        ("-numPublishers 2", (4, 1), None, "only for the subscriber"),
        ("-secureSign", (3, 3), "publisher", None),
        ("-secureSign", (4, 0), "publisher", "ended with 3.3: give a -secureGovernanceFile"),
        ("-scan 64:128", (4, 1), "publisher", None),
        ("-scan 64:128", (4, 2), "publisher", "ended with 4.1"),
        ("-threadCPUAffinity 0:1:2:3", (4, 2), None, "came with 4.3"),
        ("-outputFile x", (3, 3), None, "came with 4.0"),
        ("-networkCapture", (3, 1), None, "came with 3.2"),
        ("-qosProfile x", (4, 3), None, "has no such option"),
        ("-peer a -peer b", (3, 1), None, None),
        ("-nic a -nic b", (3, 1), None, "given twice"),
        ("-nic", (3, 1), None, "it needs a value (NAME)"),
        ("-nic -multicast", (3, 1), None, "it needs a value (NAME)"),
        ("", (3, 0), None, "does not know RTI PerfTest 3.0"),
        ("", (4, 4), None, "does not know RTI PerfTest 4.4"),
    ],
)
def test_refusals(args: str, version: options.Version, role: str | None, message: str | None) -> None:
    result = options.refusal(args.split(), version, role)
    assert result is None if message is None else message in result


def test_no_option_is_a_prefix_of_another_option() -> None:
    # PerfTest takes the first that fits a beginning, so an exact name must be given; ours are exact.
    names = list(options.OPTIONS)
    assert len(names) == len({name.lower() for name in names})
