"""The table of OSRF's report: an invented one, damaged ones, and the published one."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from k8sdds.importing import Import, import_folder
from k8sdds.results import tidy
from k8sdds.system.errors import InputError
from k8sdds.system.grouping import grouped
from tests.unit.fuzzing.readers import CORPUS

INVENTED = CORPUS / "osrf" / "invented-MininetResults.csv"
"""18 rows: three pairs of middleware and publish mode, two payloads, three runs."""


def changed(tmp_path: Path, **values: object) -> Path:
    """Write the invented table with other values in its first row, which is on line 2."""
    rows = list(csv.DictReader(io.StringIO(INVENTED.read_text())))
    rows[0].update({name.replace("_percent", " (%)"): str(value) for name, value in values.items()})
    path = tmp_path / "MininetResults.csv"
    with path.open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def attempts(path: Path, tmp_path: Path) -> dict[str, dict[str, Any]]:
    done = import_folder(path, tmp_path / "run")
    return {attempt["source"].rpartition("line ")[2]: attempt for attempt in done.run.attempts()}


def test_a_row_is_a_trial(tmp_path: Path) -> None:
    found = attempts(INVENTED, tmp_path)
    assert len(found) == 18 and all(attempt["valid"] for attempt in found.values())
    first = found["2"]
    expected = {
        "source": f"{INVENTED.name}/line 2", "testbed": "imported", "network": "mininet", "test": "paced", "rate": 30,
        "payload_bytes": 1024, "middleware": "cyclonedds", "publish_mode": "synchronous", "reliability": "reliable",
        "qos": "ros2-default", "repetition": 0, "publishers": 1, "subscribers": 1, "sent": 421, "received": 390,
        "lost": 31, "delay_mean_us": 12_500, "publisher_rss_bytes": 20_001 * 1024, "middleware_version": None,
        "transport": None, "security": None, "duration_s": None, "publisher_cpu_percent": None, "delay_p90_us": None,
        "publisher_host_cpu_percent": 0.26, "warnings": None,
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert first["lost_percent"] == pytest.approx(100 * 31 / 421)
    # 421 samples in 15 intervals of 1.0011 s, of 30 per second
    assert first["achieved_rate_percent"] == pytest.approx(100 * 421 / 15 / (30 * 1.0011))
    # Mininet loses packets at both ends of each link.
    assert first["link"]["rate_mbit"] == 54 and first["link"]["loss"] == {"percent": 10}
    modes = Counter((attempt["middleware"], attempt["publish_mode"]) for attempt in found.values())
    assert modes == {
        ("cyclonedds", "synchronous"): 6, ("fastdds", "synchronous"): 6, ("fastdds", "asynchronous"): 6,
    }  # fmt: skip
    assert len({attempt["cell_id"] for attempt in found.values()}) == 6
    assert len({attempt["trial_id"] for attempt in found.values()}) == 18


def test_a_run_without_samples_counts_and_has_no_delay(tmp_path: Path) -> None:
    (large,) = (a for a in attempts(INVENTED, tmp_path).values() if a["source"].endswith("line 5"))
    assert large["payload_bytes"] == 524_288 and large["valid"]
    assert (large["lost_percent"], large["delay_mean_us"]) == (100, None)
    assert large["warnings"][0].startswith("loss: no sample arrived")


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("rmw_implementation", "rmw_connext_cpp", "rmw_implementation ('rmw_connext_cpp'): "),
        ("async_pub", "", "async_pub (''): "),
        ("message_type", "Array4k", "message_type ('Array4k'): "),
        ("bandwidth", "inf", "bandwidth ('inf'): "),
        ("bandwidth", "0", "bandwidth ('0'): "),
        ("loss", "nan", "loss ('nan'): "),
        ("loss", "-1", "loss ('-1'): "),
        ("loss", "100", "loss ('100'): "),
        ("delay", "1e300", "delay ('1e300'): "),
        ("message_rate", "0", "message_rate ('0'): "),
        ("run", "run00", "run ('run00'): "),
        ("pub_sum_sent", "0", "lost_prct is"),
        ("sub_sum_recv", "500", "lost_prct is"),
        ("sub_sum_recv", "1.5", "sub_sum_recv ('1.5'): "),
        ("lost_prct", "12", "lost_prct is 12, but 390 of 421 samples arrived"),
        ("sub_effective_latency", "inf", "sub_effective_latency ('inf'): "),
        ("pub_mean_cpu_usage_percent", "-nan", "pub_mean_cpu_usage (%) ('-nan'): "),
        ("pub_mean_T_loop", "", "pub_mean_T_loop (''): "),
    ],
)
def test_a_row_that_is_not_valid_is_named_and_left_out(
    tmp_path: Path, column: str, value: str, problem: str
) -> None:
    found = attempts(changed(tmp_path, **{column: value}), tmp_path)
    assert set(found) == {str(line) for line in range(3, 20)}
    for attempt in found.values():
        assert attempt["warnings"][0].startswith("table: MininetResults.csv: line 2: ")
        assert problem in attempt["warnings"][0]


def test_other_columns_and_no_valid_row_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "MininetResults.csv"
    path.write_text(INVENTED.read_text().replace("lost_prct", "lost").replace("pub_sum_sent", "sent"))
    with pytest.raises(InputError, match="csv: OSRF's table without the columns pub_sum_sent, lost_prct"):
        import_folder(path, tmp_path / "run")
    head, *rows = INVENTED.read_text().splitlines()
    path.write_text("\n".join([head, *(row.replace(",30,", ",inf,") for row in rows)]))
    with pytest.raises(InputError, match=r"line 2: message_rate \('inf'\): .* \(and 17 more\)") as error:
        import_folder(path, tmp_path / "run")
    assert error.value.remedy and not (tmp_path / "run").exists()


def test_the_same_table_twice_counts_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "table.csv").write_bytes(INVENTED.read_bytes())
    done = import_folder(tmp_path / "in", tmp_path / "run")
    assert done.account["trials"] == 36 and done.account["invalid"] == {"copy": 18}
    assert done.copies[0] == "b/table.csv/line 2 has the same numbers as a/table.csv/line 2"
    account = json.loads((done.run.path / "import.json").read_text())
    assert [len(file["used"]) for file in account["files"]] == [19, 19]
    assert (done.run.path / "raw/other/a/table.csv").read_bytes() == INVENTED.read_bytes()


def test_the_command_prints_what_was_read(k8sdds) -> None:
    done = k8sdds("import", str(INVENTED), "--output", "run")
    assert done.returncode == 0, done.stderr
    assert "1 table of OSRF" in done.stdout and "18 trials, 18 valid" in done.stdout


# -- the published table ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published(mininet_results: Path, tmp_path_factory: pytest.TempPathFactory) -> Import:
    return import_folder(mininet_results, tmp_path_factory.mktemp("osrf") / "run")


def test_the_published_table_is_read_completely(published: Import) -> None:
    assert published.account["by_kind"] == {"table": 1}
    assert published.account["trials"] == 900 == published.account["valid"]
    assert not published.copies and not published.sources[0].why
    trials = tidy.best(tidy.rows(published.run))
    cells = grouped(trials, lambda row: row["cell_id"])
    assert [len({row["repetition"] for row in rows}) for rows in cells.values()] == [10] * 90
    assert all((row["delay_mean_us"] is None) == (row["received"] == 0) for row in trials)
    assert {row["lost_percent"] for row in trials if row["received"] == 0} == {100}
