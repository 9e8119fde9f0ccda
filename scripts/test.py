"""Run parts of the tests one after the other, and print one summary of what failed and what was not tested.

A part that fails does not prevent the next one. The exit code is 1 if any part failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

RESULTS = Path("build/tests")
# Several files of these run at once: they use names, cgroups and DDS domains of their own, and mostly wait. What the
# other real tests of the lab measure depends on other work; those in tests/cluster share one cluster.
PARALLEL = tuple(
    f"tests/lab/{name}"
    for name in (
        "test_campaigns.py",
        "test_fleets.py",
        "test_killed_parts.py",
        "perftest",
        "links",
        "report",
        "networks",
        "security",
        "connext",
        "supervisor",
        "native",
        "test_shared_memory.py",
        "test_environment.py",
        "test_installed.py",
        "test_commands.py",
    )
)
# In this order: files with few but long tests are not the last ones.
AT_ONCE = ("--numprocesses=8", "--dist=loadfile", "--no-loadscope-reorder")
PARTS = {
    # Unit tests share nothing but fixtures, so they run on all cores, which take tests from each other in the end.
    "unit": ("tests/unit", "--numprocesses=auto", "--dist=worksteal"),
    "lab-parallel": (*PARALLEL, *AT_ONCE),
    "lab": ("tests/lab", *(f"--ignore={name}" for name in PARALLEL)),
    "deploy": ("tests/deploy", *AT_ONCE),
    "cluster": ("tests/cluster",),
}
LINT = "lint"


@dataclass
class Result:
    """What a part of the tests showed."""

    part: str
    exit_code: int
    seconds: float
    failed: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Reasons of skipped tests, each with the number of its tests."""

    @property
    def line(self) -> str:
        """Its line of the summary."""
        verdict = "passed" if self.exit_code == 0 else f"FAILED with exit code {self.exit_code}"
        return f"{self.part:18}{self.seconds / 60:5.1f} min  {verdict}"


def main() -> int:
    """Run the named parts and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="+", choices=[LINT, *PARTS], metavar="PART", help=", ".join([LINT, *PARTS])
    )
    parser.add_argument("--long", action="store_true", help="run the long tests, too")
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = [run(part, options.long) for part in options.parts]
    print_summary(results)
    return int(any(result.exit_code for result in results))


def run(part: str, long: bool) -> Result:
    """Run one part with its output on the terminal."""
    print(f"\n{part}", flush=True)
    start = time.monotonic()
    if part == LINT:
        return Result(
            part, subprocess.call(["make", "--no-print-directory", "lint"]), time.monotonic() - start
        )
    report = RESULTS / f"{part}.xml"
    report.unlink(missing_ok=True)
    selection = () if long else ("-m", "not long")
    command = [sys.executable, "-m", "pytest", *PARTS[part], *selection, f"--junitxml={report}"]
    # Bytecode that is not written is compiled again in each process of the tests and for each command.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    result = Result(part, subprocess.call(command, env=environment), time.monotonic() - start)
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed.append(f"{case.get('classname')}::{case.get('name')}")
        if (skipped := case.find("skipped")) is not None:
            result.skipped[skipped.get("message", "")] += 1
    return result


def print_summary(results: list[Result]) -> None:
    """Print the verdict of each part, the tests that failed, and what was not tested and why."""
    print("\nsummary")
    for result in results:
        print(f"  {result.line}")
        for name in result.failed:
            print(f"      {name}")
    not_tested = sum((result.skipped for result in results), Counter[str]())
    if not_tested:
        print("\nnot tested")
    for reason, count in not_tested.most_common():
        print(f"{count:6} {reason}")


if __name__ == "__main__":
    sys.exit(main())
