"""The setting in which a report shows a contrast."""

from __future__ import annotations

from k8sdds.analysis.contrast import of_one_setting


def _row(payload_bytes: int, link: str, security: str = "SignRTPS") -> dict:
    return {
        "column": "security", "network_label": "host", "test": "throughput", "payload_bytes": payload_bytes,
        "subscribers": 1, "security": security, "link": link,
    }  # fmt: skip


def test_the_setting_with_the_most_rows_is_shown_and_returned() -> None:
    rows = [_row(64, "100 Mbit/s"), _row(64, ""), _row(1024, ""), _row(1024, "100 Mbit/s"), _row(16384, "")]
    selected, setting = of_one_setting(rows)
    assert [row["payload_bytes"] for row in selected] == [64, 1024, 16384]
    assert setting == {"link": ""} and all(row["link"] == "" for row in selected)


def test_without_further_varied_settings_all_rows_are_shown() -> None:
    rows = [_row(64, ""), _row(1024, "")]
    assert of_one_setting(rows) == (rows, {})
