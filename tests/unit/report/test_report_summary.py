"""The summary of a report, its terminal output and the table of a running campaign."""

import io
import itertools
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from k8sdds import links, report
from k8sdds.analysis.conditions import CONDITION
from k8sdds.model.trial import AXES
from k8sdds.report import caveats, content, formats, html, summary, tables
from k8sdds.report.terminal import results_so_far, show
from k8sdds.results import tidy
from tests import run_folders as folders
from tests.reports import KINDS


def sentences(run):
    return {
        item.lead: " ".join(item.sentences).replace("\u00a0", " ")
        for item in summary.answer(content.read(run))
    }


def make(path, **options):
    return folders.make(path, folders.Plan(**({"histograms": False} | options)))


def test_two_networks_are_compared_in_one_sentence_per_metric(tmp_path):
    run = make(tmp_path / "run", networks=("host", "flannel-hostgw"), payloads=(1024,), noise=0.001)
    (lead, text), = sentences(run).items()  # fmt: skip
    assert lead == "Unicast, reliable, 1 subscriber"
    assert text.startswith("1 KiB: throughput falls with flannel-hostgw, by 24.")
    assert "1 KiB: p90 latency grows with flannel-hostgw, by 13." in text
    assert text.endswith("relative to host.")


def test_repetitions_in_which_no_sample_arrived_are_counted(tmp_path):
    run = make(tmp_path / "run", networks=("host", "weavenet"), payloads=(1024,), tests=("paced",))
    records = run.attempts()
    first = next(item for item in records if item["network"] == "weavenet")
    times = [name for name in first if name.startswith("delay_") and name.endswith("_us")]
    first |= dict.fromkeys(times) | {"received": 0, "lost_percent": 100.0, "delay_count": 0}
    first["missing"] = dict.fromkeys(times, "no sample arrived")
    found = content.read(folders.rewritten(run, records))
    n = sum(item["network"] == "weavenet" for item in records)
    (caveat,) = [text for text in caveats.notes(found) if "no sample arrived" in text]
    assert caveat.startswith(f"Some trials of weavenet (1 of {n}: no sample arrived) have no p90 delay.")
    assert not any("too few samples arrived" in text for text in caveats.notes(found))
    (setting,) = found.settings
    cells = {
        cell.plain for table in tables.levels(found, setting, "paced") for row in table.rows for cell in row
    }
    assert f"–\n1 of {n}: no sample arrived" in cells
    (losses,) = [row for key, row in setting.levels("lost_percent", "paced").items() if key[0] == "weavenet"]
    assert losses["n"] == n and losses["maximum"] == 100
    screen = [row for row in results_so_far(tidy.of(records), "host").texts if row[0] == "weavenet"]
    assert all("%" not in cell for cell in screen[0][3:])


def test_trials_with_too_few_values_are_named_next_to_those_without_samples(tmp_path):
    run = make(tmp_path / "run", networks=("host", "weavenet"), payloads=(1024,), tests=("paced",))
    records = run.attempts()
    silent, few, *_ = (item for item in records if item["network"] == "weavenet")
    silent |= {"delay_p90_us": None, "delay_count": 0, "missing": {"delay_p90_us": "no sample arrived"}}
    few |= {"delay_p90_us": None, "delay_count": 25, "missing": {"delay_p90_us": "25 values, 100 are needed"}}
    notes = caveats.notes(content.read(folders.rewritten(run, records)))
    assert any(note.startswith("Some trials of weavenet (1 of") for note in notes)
    (remedy,) = [note for note in notes if note.startswith("No p90 delay of some trials of weavenet")]
    assert "Their cells have none" in remedy and remedy.endswith("or measure at least 4 times as long.")


def test_a_percentile_that_one_repetition_knows_does_not_change_n(tmp_path):
    run = make(tmp_path / "run", networks=("host", "flannel-hostgw"), payloads=(1024,))
    records = [item | {"latency_p9999_us": None} for item in run.attempts()]
    known = next(item for item in records if item["test"] == "latency")
    known["latency_p9999_us"] = known["latency_max_us"]
    read = content.read(folders.rewritten(run, records))
    assert [setting.repetitions() for setting in read.settings] == ["3"]
    assert not any("n = 1" in note for note in caveats.notes(read))


def test_summary_names_best_and_worst_network_and_ties(tmp_path):
    text = sentences(make(tmp_path / "run", payloads=(1024,), noise=0.003, repetitions=5))[
        "Unicast, reliable, 1 subscriber"
    ]
    assert "throughput falls least with" in text and "most with weavenet, by 49" in text
    # 24.5 % and 24.6 % cannot be distinguished with this noise.
    assert "(no difference seen between it and" in text
    assert "p90 latency grows least with kube-router, by 9.5" in text


def test_no_difference_is_reported(tmp_path):
    text = sentences(make(tmp_path / "run", networks=("host", "kube-router"), payloads=(16384,), noise=0.005))
    expected = "throughput: no difference from host seen for kube-router (95 % interval spans 0; smallest detectable ±"
    assert expected in str(text)


def test_comparison_is_undecided_if_a_relevant_difference_could_be_missed(tmp_path):
    text = sentences(
        make(tmp_path / "run", networks=("host", "kube-router"), payloads=(16384,), noise=0.6, seed=3)
    )
    assert "throughput: undecided for kube-router." in str(text)
    assert "no difference" not in str(text)


def test_one_repetition_gets_no_judgment(tmp_path):
    run = folders.single(tmp_path / "run")
    text = str(sentences(run))
    assert "no difference" not in text and "[" not in text.replace("['", "").strip("{}")
    assert any("no confidence interval" in note for note in caveats.notes(content.read(run)))


def test_a_network_with_one_repetition_is_undecided_next_to_networks_with_more(tmp_path):
    run = make(tmp_path / "run", payloads=(1024,), noise=0.003)
    alone = {"network": "weavenet", "test": "throughput"}
    records = [
        item for item in run.attempts() if item["repetition"] == 0 or not alone.items() <= item.items()
    ]
    (text,) = sentences(folders.rewritten(run, records)).values()
    throughput, latency = text.split(" 1 KiB: p90 latency")
    assert throughput.endswith("undecided for weavenet.") and "most with weavenet" in latency


def test_a_line_that_cannot_be_read_is_named(tmp_path):
    run = make(tmp_path / "run", payloads=(1024,))
    path = run.path / "trials.jsonl"
    path.write_text(path.read_text().replace('{"', "#", 1))
    command = "k8sdds run --resume FOLDER"
    assert (
        "Line 1 of trials.jsonl cannot be read (a crash can cause this), so its attempt does not count. Measure what"
        f" is missing: {command}" in caveats.notes(content.read(run))
    )
    path.write_text(path.read_text() + '{"trial_id": "incom')
    last = len(path.read_text().splitlines())
    assert (
        f"Lines 1 and {last} of trials.jsonl cannot be read (a crash can cause this), so their attempts do not count."
        f" Measure what is missing: {command}" in caveats.notes(content.read(run))
    )


def test_an_incomplete_line_of_a_trial_that_was_measured_again_needs_no_remedy(tmp_path):
    run = make(tmp_path / "run", payloads=(1024,))
    with open(run.path / "trials.jsonl", "a") as file:
        file.write('{"trial_id": "incom')
    (note,) = [note for note in caveats.notes(content.read(run)) if "trials.jsonl" in note]
    assert note.endswith("so its attempt does not count.")


def test_gain_over_the_baseline_is_not_a_negative_cost(tmp_path):
    run = make(
        tmp_path / "run", networks=("host", "weavenet"), payloads=(64,), noise=0.001, baseline="weavenet"
    )
    text = str(sentences(run))
    assert "throughput: host is better than weavenet by 11" in text
    assert "p90 latency: host is better than weavenet by" in text and "-" not in text.replace("[-", "")


def test_summary_is_about_one_payload_and_counts_the_rest(tmp_path):
    text = sentences(make(tmp_path / "run", noise=0.001))["Unicast, reliable, 1 subscriber"]
    assert [size in text for size in ("64 B:", "256 B:", "1 KiB:", "4 KiB:", "16 KiB:")] == [0, 0, 1, 0, 0]
    assert text.endswith("4 further combinations in the tables.")


def test_multicast_is_compared_with_unicast_of_the_same_setting(tmp_path):
    """One middleware sends multicast faster than unicast, the other one does not."""
    sweeps = [
        {"subscribers": n, "middleware": middleware, "transport": transport}
        for n in (1, 4)
        for middleware in ("cyclonedds", "fastdds")
        for transport in ("unicast", "multicast")
    ]
    run = make(
        tmp_path / "run",
        networks=("weavenet",),
        payloads=(1024,),
        tests=("throughput",),
        conditions=sweeps,
    )
    attempts = run.attempts()
    for row in attempts:
        if row["transport"] == "multicast":
            row["throughput_mbps"] *= 10 if row["middleware"] == "fastdds" else 0.1
    found = summary.answer(content.read(folders.rewritten(run, attempts)))
    (multicast,) = (one.sentences for one in found if one.lead == "Multicast against unicast")
    cyclone, fast = multicast[:2]
    assert cyclone.startswith("weavenet, 1 KiB, cyclonedds: ") and cyclone.endswith("not seen to be faster.")
    assert fast.startswith("weavenet, 1 KiB, fastdds: ") and fast.endswith("faster with 1 and 4 subscribers.")


def test_summary_names_networks_with_multicast_and_where_it_is_faster(reports):
    run = reports("scaling").run
    text = sentences(run)["Multicast against unicast"]
    assert text.startswith("Only weavenet supports multicast.")
    assert "multicast is faster with 4, 8 and 12 subscribers" in text
    notes = caveats.notes(content.read(run))
    assert any(note.startswith("host was not measured in multicast, reliable; levels") for note in notes)
    assert any("include scheduling" in note for note in notes)


def test_summary_without_valid_trials(reports):
    assert "No attempt has ended yet" in sentences(reports("empty").run)["No result"]
    assert "None of 5 attempts is valid" in sentences(reports("all_invalid").run)["No result"]
    assert "peer-lost (5)" in sentences(reports("all_invalid").run)["No result"]


def test_interrupted_campaign_reports_missing_trials(reports):
    note = caveats.notes(reports("troubled").content)[0]
    assert (
        note
        == "105 of 144 trials have a valid attempt; 10 have only invalid attempts; 29 were not attempted."
    )


def test_cluster_with_one_kernel_is_reported(tmp_path):
    run = folders.make(tmp_path / "run", folders.Plan(networks=("host",), payloads=(64,), testbed="cluster"))
    assert content.read(run).testbed == "cluster whose nodes share one kernel"
    for boot_ids, expected in (("aab", "cluster in which n0 and n1 share one kernel"), ("abc", "cluster")):
        facts = {"nodes": {f"n{number}": {"boot_id": boot_id} for number, boot_id in enumerate(boot_ids)}}
        run = folders.with_campaign(run, testbed={"name": "cluster", "facts": facts})
        assert content.read(run).testbed == expected


@pytest.mark.parametrize("kind", KINDS)
def test_terminal_output_fits_80_columns_without_color(reports, kind):
    printed = reports(kind).printed
    assert "\x1b" not in printed
    lines = [line.rstrip() for line in printed.splitlines() if not line.startswith("Report: ")]
    assert max(len(line) for line in lines) <= 80
    assert f"{kind}/report/report.html" in printed


def test_terminal_output_starts_with_the_summary(reports):
    lines = reports("paper").printed.splitlines()
    assert lines[0].startswith("paper · 2026-11-21 10:15 UTC · 150 valid trials")
    assert lines[1].startswith("Throughput, 1 KiB: kube-router is 1.")
    lines = lines[lines.index("") :]
    assert lines[1] == "Unicast, reliable, 1 subscriber"
    assert lines[2].startswith("- 1 KiB: throughput falls least with")


def test_results_so_far(reports):
    attempts = reports("troubled").content.attempts
    out = io.StringIO()
    Console(file=out, width=80).print(results_so_far(attempts, "host"))
    text = out.getvalue()
    assert text.splitlines()[0].split()[:3] == ["network", "valid", "invalid"]
    assert "weavenet-1376" in text and "baseline" in text and "%" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "attempts", [[], [{}], [{"network_label": "x", "valid": True, "throughput_mbps": 0}]]
)
def test_results_so_far_of_incomplete_records(attempts):
    out = io.StringIO()
    Console(file=out, width=80).print(results_so_far(tidy.of(attempts), "host"))
    assert "host" in out.getvalue()


@pytest.mark.parametrize(("show", "given", "text"), [
    (formats.percent, (30.04, 27.2, 33.1), "30 [27, 33]"), (formats.percent, (0.31, -0.12, 0.74), "0.3 [-0.1, 0.7]"),
    (formats.percent, (-0.04, -0.08, 0.0), "-0.04 [-0.08, 0.00]"), (formats.percent, (7.0, 0.4, 13.0), "7 [0.4, 13.0]"),
    (formats.percent, (-0.3, -4.0, 3.4), "0 [-4, 3]"), (formats.percent, (25.2, None, None), "25"),
    (formats.percent, (2.52, None, None), "2.5"), (formats.percent, (None, None, None), "–"),
    (formats.number, (0.04123,), "0.0412"), (formats.number, (6.1,), "6.10"), (formats.number, (94.04,), "94.0"),
    (formats.number, (1650.2,), "1650"), (formats.number, (18186,), "18186"), (formats.number, (0,), "0"),
    (formats.number, (None,), "–"),
    (formats.level, (94.04, 93.1, 94.9), "94.0 [93.1, 94.9]"), (formats.level, (6.1, None, None), "6.10"),
    (formats.level, (1664.6, 1388.2, 1998.0), "1665 [1388, 1998]"),
    (formats.moment, ("2026-11-21T10:15:30Z",), "2026-11-21 10:15 UTC"), (formats.moment, ("soon",), "soon"),
])  # fmt: skip
def test_numbers_have_the_digits_that_are_known(show, given, text):
    assert show(*given) == text


def test_networks_without_a_percentile_are_named(tmp_path):
    few = {"delay_p90_us": None, "missing": {"delay_p90_us": "88 values, 100 are needed"}}
    run = folders.changed(
        folders.camera(tmp_path / "run"), lambda item: few if item["network"] == "weavenet" else {}
    )
    notes = caveats.notes(content.read(run))
    assert any(note.startswith("No p90 delay of some trials of weavenet: too few samples") for note in notes)
    reason = {"quantity": "delay_p90_us", "network_label": "weavenet", "reason": "88 values, 100 are needed"}
    reason |= {"trials": 0, "remedy": "measure longer"}
    assert [entry | {"trials": 0} for entry in report.summarize(run)["missing"]] == [reason]
    page = html.write(content.read(run), [], run.report / "report.html").read_text()
    assert "p90 delay of weavenet: 88 values, 100 are needed" in page


def test_the_clocks_that_measured_delays_are_stated(tmp_path):
    run = folders.camera(tmp_path / "run")
    items = run.attempts()
    for item, error in zip(items[1:], (20.25, 31.5), strict=False):
        later = {name: 5000.0 for name in item if re.fullmatch(r"delay_(p9\d+|max)_us", name) and item[name]}
        item |= {
            "delay_method": "synchronized clocks",
            "clock_error_us": error,
            "delay_p50_us": 1050.0,
        } | later
    items[0]["delay_method"] = "round trip / 2"
    run = folders.rewritten(run, items)
    note, error = (text for text in caveats.notes(content.read(run)) if text.startswith("Delays"))
    assert "one-way, by synchronized clocks (2 trials)" in note
    assert "wrong by up to 31.5 µs (3 % of the median delay)" in error and "no interval contains it" in error
    assert "as half of round trips (1 trial)" in note
    assert f"one-way, by a clock that all participants share ({len(items) - 3} trials)" in note


@pytest.mark.parametrize(
    ("testbed", "offloads", "expected"),
    [
        ("lab", {"gro": True, "tso": False}, "as between Ethernet cards (gro on, tso off; 4 trials)"),
        ("lab", {}, "had up to 64 KiB, because veth pairs segment nothing"),
        ("cluster", {}, "as large as the network cards made them (offloads unchanged; 4 trials)"),
    ],
)
def test_how_large_the_packets_of_tcp_were_is_stated(tmp_path, testbed, offloads, expected):
    run = folders.make(tmp_path / "run", folders.Plan(networks=("host", "flannel-vxlan"), payloads=(64,)))
    items = [
        item | {"test": "tcp-stream", "testbed": testbed, "link": item["link"] | {"offloads": offloads}}
        for item in run.attempts()[:4]
    ]
    run = folders.with_campaign(folders.rewritten(run, items), testbed={"name": testbed, "facts": {}})
    (note,) = (text for text in caveats.notes(content.read(run)) if text.startswith("TCP packets"))
    assert expected in note


def test_packets_of_links_that_differ_in_something_else_are_stated_once_and_published_ones_not_at_all(
    tmp_path,
):
    run = folders.make(tmp_path / "run", folders.Plan(networks=("host", "flannel-vxlan"), payloads=(64,)))
    items = [item | {"test": "tcp-stream"} for item in run.attempts()]
    items[1]["link"] = items[1]["link"] | {"loss_percent": 1}
    items[2]["testbed"] = "imported"
    run = folders.rewritten(run, items)
    (note,) = (text for text in caveats.notes(content.read(run)) if text.startswith("TCP packets"))
    assert note.count("offloads unchanged") == 1 and f"; {len(items) - 1} trials)" in note


def test_the_values_of_named_links_are_stated(tmp_path):
    run = folders.make(tmp_path / "run", folders.Plan(networks=("host", "flannel-vxlan"), payloads=(64,)))
    roaming = AXES["link"].recorded(links.load("wifi-roaming").link)
    run = folders.changed(run, {"link": roaming})
    (note,) = (text for text in caveats.notes(content.read(run)) if text.startswith("Links"))
    assert note == (
        "Links wifi-roaming: both ways 4 ms ± 6 ms delay (pareto), bursts of loss (p 0.5 %, r 20 %), 100 Mbit/s,"
        " queue of 1000 packets (codel); Wi-Fi outage of 0.5 s every 30 s."
    )


def test_a_missing_percentile_of_the_buffer_delay_is_not_one_of_the_latency(tmp_path):
    run = folders.make(tmp_path / "run", folders.Plan(networks=("host",), payloads=(64,)))
    run = folders.changed(run, {"missing": {"loaded_latency_p90_us": "9 values, 100 are needed"}})
    assert not any("percentile" in note or "Delays" in note for note in caveats.notes(content.read(run)))


def test_shares_of_one_setting_are_summarized_together():
    def share(network, reliability, ratio):
        condition = dict.fromkeys(CONDITION) | {"reliability": reliability, "middleware": "fastdds"}
        point = {"payload_bytes": 1024, "subscribers": 1}
        ratios = {"ratio": ratio, "ratio_low": None, "ratio_high": None, "n": 1}
        kind = {"quantity": "throughput_mbps", "raw": False, "limit": "machine"}
        return condition | point | ratios | kind | {"network_label": network}

    rows = [
        share("host", "reliable", 0.5), share("flannel", "best-effort", 0.9), share("flannel", "reliable", 0.4),
    ]  # fmt: skip
    shown = SimpleNamespace(limits=rows, networks=["host", "flannel"], baseline="host")
    (sentence,) = summary._limits(shown)
    assert "host 50" in sentence and "flannel 40" in sentence and "90" not in sentence


def test_a_paced_test_shows_its_tail_and_its_missed_deadlines(reports):
    out = io.StringIO()
    show(reports("camera").content, Console(file=out, width=100), [])
    assert "p90 µs" in out.getvalue() and "p99 µs" in out.getvalue() and "missed %" in out.getvalue()


@pytest.mark.parametrize(
    ("testbed", "installed", "expected"),
    [
        ("lab", None, "pods on a cluster; pods of the lab have no other."),
        (
            "cluster", "flannel-vxlan",
            "the pods. The first one, on flannel-vxlan, carried none. Services, DNS and NetworkPolicies apply only to the"
            " first one.",
        ),
        (
            "cluster", None,
            "the pods. The first one carried none. Services, DNS and NetworkPolicies apply only to the first one.",
        ),
    ],
)  # fmt: skip
def test_a_second_interface_is_named_once_for_its_network(tmp_path, testbed, installed, expected):
    run = make(tmp_path / "run", networks=("host", "macvlan"), payloads=(1024,))
    records = [row | {"testbed": testbed, "installed_network": installed} for row in run.attempts()]
    notes = caveats.notes(content.read(folders.rewritten(run, records)))
    found = [note for note in notes if "second interface" in note]
    assert found == [f"Samples of macvlan used net1, the second interface of {expected}"]


def test_all_first_networks_of_the_pods_are_named(tmp_path):
    run = make(tmp_path / "run", networks=("host", "macvlan"), payloads=(1024,))
    firsts = itertools.cycle(("flannel-vxlan", "calico-vxlan"))
    records = [
        row | {"testbed": "cluster"} | ({"installed_network": next(firsts)} if row["network"] == "macvlan" else {})
        for row in run.attempts()
    ]  # fmt: skip
    notes = caveats.notes(content.read(folders.rewritten(run, records)))
    (note,) = (note for note in notes if "second interface" in note)
    assert ". The first one, on flannel-vxlan and calico-vxlan, carried none." in note
