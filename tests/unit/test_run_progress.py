"""What `k8sdds run` prints while it measures."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds.cli import terminal
from k8sdds.cli.progress import CampaignProgress
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import RunFolder

RECORDED = Path(__file__).parent / "recorded" / "version-0.1.0" / "run-folder"


def test_a_warning_of_one_kind_is_printed_once_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.console.cache_clear()
    attempts = [a for a in RunFolder(RECORDED).attempts() if a["valid"] and a["test"] == "throughput"][:3]
    with CampaignProgress("host", 1) as progress:
        for number, attempt in enumerate(attempts):
            used = f"disturbed: other processes used {9 + 48 * number} % of a core during the attempt"
            missing = {
                "delay_p99_us": "84 values, 100 are needed",
                "latency_p90_us": "1 value, 100 are needed",
            }
            more: dict[str, Any] = {"warnings": [used] if number else [], "missing": missing}
            trial: Any = SimpleNamespace(trial_id=attempt["trial_id"], describe=lambda: "a trial")
            progress.trial_starts(trial, number, 3)
            progress.trial_ended(trial, TrialRecord.read(attempt | more))
        before = capsys.readouterr().out
    assert "disturbed" not in before and "unknown" not in before
    assert capsys.readouterr().out.splitlines() == [
        "! 3 of 3 trials: p99 delay unknown: 84 values, 100 are needed",
        "! 2 of 3 trials, such as: disturbed: other processes used 105 % of a core during the attempt",
    ]
    # As in the tables: three digits.
    assert f"    {attempts[0]['throughput_mbps']:.0f} Mbit/s, " in before
    terminal.console.cache_clear()
