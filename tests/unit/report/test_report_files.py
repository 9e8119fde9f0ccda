"""The files of a report: tables, figures and HTML, also of run folders without results."""

import csv
import io
import itertools
import json
import re
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from rich.console import Console

from k8sdds.analysis import limit
from k8sdds.analysis.conditions import CONDITION
from k8sdds.report import content, csv_tables, html, summarize, write_report
from k8sdds.report import tables as html_tables
from k8sdds.report.figures import details, trade_off
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError
from tests import run_folders as folders
from tests.reports import KINDS, check_policy

OVERHEAD = [
    "network", "payload_bytes", "overhead_percent", "ci_low_percent", "ci_high_percent", "n", "baseline",
]  # fmt: skip


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_have_no_empty_columns_and_no_constant_conditions(reports, kind):
    tables = {path.stem: read(path) for path in reports(kind).tables.iterdir()}
    assert all(tables.values())
    assert len(tables.get("trials", ())) == len(reports(kind).run.attempts())
    conditions = {row["table"]: row for row in tables.pop("conditions", ())}
    assert conditions.keys() == tables.keys()
    for name, rows in tables.items():
        for column in rows[0].keys() - csv_tables.ALWAYS:
            values = {row[column] for row in rows}
            assert values != {""} and (column not in CONDITION or len(values) > 1), (name, column)
            assert not conditions[name].get(column), (name, column)


def test_tables_contain_the_simulated_overheads(tmp_path):
    run = folders.make(tmp_path / "run", folders.Plan(noise=0, histograms=False))
    csv_tables.write(content.read(run), tmp_path / "tables")
    for name, truth in (
        ("throughput_overhead", folders.THROUGHPUT_OVERHEAD),
        ("latency_p90_overhead", folders.LATENCY_OVERHEAD),
    ):
        rows = read(tmp_path / "tables" / f"{name}.csv")
        assert len(rows) == 20 and list(rows[0])[: len(OVERHEAD)] == OVERHEAD
        for row in rows:
            index = folders.PAYLOADS.index(int(row["payload_bytes"]))
            shown = [float(row[name]) for name in OVERHEAD if name.endswith("_percent")]
            assert shown == pytest.approx([truth[row["network"]][index]] * 3, abs=1e-6)
            assert (row["n"], row["baseline"]) == ("3", "host")
    # Tables are sorted by the campaign's order of networks, then by payload.
    assert [row["payload_bytes"] for row in rows[:5]] == [str(size) for size in folders.PAYLOADS]
    assert list(dict.fromkeys(row["network"] for row in rows)) == list(folders.FIVE[1:])


def test_rows_of_different_conditions_are_distinguishable(reports):
    rows = read(reports("troubled").tables / "throughput_overhead.csv")
    keys = [(row["network"], row["payload_bytes"], row["reliability"]) for row in rows]
    assert len(keys) == len(set(keys))
    assert {row["reliability"] for row in rows} == {"reliable", "best-effort"}


def test_levels_contain_every_quantity_of_every_cell(reports):
    rows = read(reports("paper").tables / "levels.csv")
    keys = [(r["network_label"], r["test"], r["payload_bytes"], r["quantity"]) for r in rows]
    assert len(keys) == len(set(keys))
    assert {"throughput_mbps", "latency_p90_us", "publisher_rss_bytes"} <= {row["quantity"] for row in rows}
    assert all(row["ci_low"] and row["ci_high"] and row["n"] == "3" for row in rows)


def test_invalid_attempts_are_listed_with_reasons(reports):
    report = reports("troubled")
    rows = read(report.tables / "invalid.csv")
    assert len(rows) == sum(not item["valid"] for item in report.run.attempts())
    assert all(":" in row["reason"] for row in rows)
    assert "lost-samples: 214 of 9000 samples were lost &lt;reliable&gt;" in report.page


def test_settings_are_compared_if_several_were_measured(reports):
    rows = read(reports("scaling").tables / "contrasts.csv")
    assert {(row["network"], row["column"], row["value"]) for row in rows} == {
        ("weavenet", "transport", "multicast")
    }
    assert "Multicast against unicast: change of throughput in %" in reports("scaling").page
    assert "Best-effort against reliable: change of p90 latency in %" in reports("troubled").page
    assert not (reports("paper").tables / "contrasts.csv").exists()


EXPECTED = {
    "paper": ["overhead", "throughput", "latency", "latency-distribution"],
    "scaling": ["subscribers", "overhead-unicast", "throughput-unicast", "throughput-multicast"],
    "single": ["overhead", "throughput", "latency", "latency-distribution"],
    "camera": ["overhead", "paced", "delay-distribution"],
    "troubled": ["timeline-reliable", "cpu-places-reliable"],
    "old": ["overhead", "throughput"],
}


def test_a_new_report_replaces_the_figures_and_is_the_same_and_printed(reports):
    run, first = reports("single").run, reports("single").text
    (run.report / "figures/subscribers.pdf").write_bytes(b"old")
    out = io.StringIO()
    path = write_report(run, Console(file=out, width=80))
    assert path.read_text() == first and not list((run.report / "figures").glob("*.pdf"))
    assert out.getvalue().startswith("single · ") and out.getvalue().splitlines()[-1] == f"Report: {path}"


@pytest.mark.long
def test_figures_are_written_as_pdf_with_their_fonts_if_requested(tmp_path):
    run = folders.single(tmp_path / "run")
    write_report(run, None, pdf=True)
    figures = run.report / "figures"
    assert (
        {path.stem for path in figures.glob("*.pdf")}
        == {path.stem for path in figures.glob("*.svg")}
        != set()
    )
    for path in figures.glob("*.pdf"):
        pdf = path.read_bytes()
        fonts = pdf.count(b"/Type /FontDescriptor")
        assert fonts == pdf.count(b"/FontFile2") == pdf.count(b"/Subtype /CIDFontType2") > 0  # Type 42


class Checker(HTMLParser):
    """Collects problems of HTML that is not well-formed or not self-contained."""

    VOID = frozenset(("meta", "br", "img", "link", "hr", "input", "col", "wbr"))

    def __init__(self) -> None:
        super().__init__()
        self.open, self.problems, self.ids, self.links, self.headings, self.figures = [], [], [], [], [], 0

    def handle_starttag(self, tag, attrs):
        self._attributes(tag, dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._attributes(tag, dict(attrs))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()} closes no open element")

    def _attributes(self, tag, attributes):
        if tag in ("link", "iframe", "object", "embed"):
            self.problems.append(f"<{tag}> at {self.getpos()}")
        for name in ("src", "href", "xlink:href"):
            value = attributes.get(name)
            if value and not value.startswith(("#", "data:")):
                self.problems.append(f"{name}={value}")
            if value and value.startswith("#"):
                self.links.append(value[1:])
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if tag == "svg" and "role" in attributes:
            self.figures += 1
            assert attributes["role"] == "img" and attributes["aria-labelledby"]


@pytest.mark.parametrize("kind", KINDS)
def test_reports_are_well_formed_and_self_contained_and_begin_with_the_answer(reports, kind):
    # One test, because each process that runs a test of a kind draws its figures.
    report, text = reports(kind), reports(kind).text
    names = {path.stem for path in (report.folder / "figures").iterdir()}
    assert set(EXPECTED.get(kind, ())) <= names and (names or kind in ("empty", "all_invalid"))
    for name in names:
        assert (report.folder / f"figures/{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (report.folder / f"figures/{name}.svg").read_text()
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.problems == checker.open == []
    assert len(checker.ids) == len(set(checker.ids)) and set(checker.links) <= set(checker.ids)
    check_policy(text)
    library = 'id="vega">' in text
    assert "<style type" not in text and text.count("<script") == (3 if library else 1)
    assert checker.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(checker.headings))
    assert checker.figures == len(names)
    # XML namespaces are not resources; the file must not contain any other URL.
    outside = text.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
    assert "http://" not in outside and "https://" not in outside
    assert "url(" not in outside.replace("url(#", "") and "@import" not in outside
    if kind in ("paper", "scaling", "troubled", "single"):
        check_captions(report, text)
        before = text[text.index("<main>") : text.index('class="conditions"')]
        assert before.count("<figure ") == 1 and 1 <= before.split("<details")[0].count("<h3>") <= 3
        assert ("includes scheduling" in text) == (kind == "scaling")


def check_captions(report, text):
    """Check that conditions are stated once, and that captions are short."""
    top = text[text.index('class="conditions"') :].split("</details>")[0]
    assert "lab: network namespaces on one machine, one kernel" in top and "layout" in top
    assert all(escape(setting.title) in top for setting in report.content.settings)
    captions = [part.split("</figcaption>")[0] for part in text.split("<figcaption>")[1:]]
    assert captions
    for caption in captions:
        assert "n = " in caption and "layout" not in caption and "lab: network" not in caption
        assert len(caption.split("</b>")[1]) < 260
    for under in text.split('<p class="under">')[1:]:
        note = under.split("</p>")[0]
        assert note.startswith(("Before it measured", "MTUs in bytes")) or (
            "n = " in note and "95 % interval" in note
        )


def test_user_input_is_escaped(tmp_path):
    run = folders.single(tmp_path / "run")
    item = run.attempts()[0]
    label = "<script>alert(1)</script>"
    folders.add(run, folders.Plan(), folders.invalid(item | {"network_label": label}, 1, f"x: {label}"))
    for other in run.attempts():
        run.append_attempt(
            other | {"trial_id": "e" + other["trial_id"], "network_label": "<b>&evil</b>", "valid": True}
        )
    text = write_report(run, None).read_text()
    assert "<script>alert" not in text and "<b>&evil" not in text
    assert text.count("<script") == 3 == text.count("</script")
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("kind", KINDS)
def test_summary_is_json_serializable(reports, kind):
    data = json.loads(json.dumps(summarize(reports(kind).run), allow_nan=False))
    assert data["answer"] and data["trials"]["valid"] <= data["trials"]["planned"]


def test_dds_is_shown_as_a_share_of_plain_udp(tmp_path):
    conditions = [{}, {"reliability": "best-effort", "networks": ("host", "weavenet"), "middleware": "raw"}]
    run = folders.make(
        tmp_path / "run",
        folders.Plan(
            payloads=(1024,), tests=("throughput",), conditions=conditions, noise=0, histograms=False
        ),
    )
    made = content.read(run)
    csv_tables.write(made, tmp_path / "tables")
    rows = read(tmp_path / "tables" / "limit_shares.csv")
    weavenet = [row for row in rows if row["network"] == "weavenet"]
    expected = 1 - folders.THROUGHPUT_OVERHEAD["weavenet"][folders.PAYLOADS.index(1024)] / 100
    # The made folder has the same rate for every middleware.
    assert {(row["middleware"], row["limit"]): round(float(row["ratio"]), 6) for row in weavenet} == {
        ("cyclonedds", "machine"): 1,
        ("raw", "machine"): pytest.approx(expected, abs=1e-6),
    }
    # A network without raw trials is compared with the baseline.
    assert {row["limit_network"] for row in rows if row["network"] == "kube-router"} == {"host"}
    page = html.render(made, [])
    assert "throughput relative to the limit of its network" in page and "raw on host" in page
    data = summarize(run)
    assert len(data["limits"]) == len(rows)
    assert "Share of the machine's limit" in [statement["lead"] for statement in data["answer"]]


def test_tables_of_plain_udp_name_their_setting_and_n():
    usual = dict.fromkeys(CONDITION) | {"test": "throughput", "payload_bytes": 64, "subscribers": 1}
    trials = [
        usual | dict.fromkeys(limit.QUANTITIES) | {
            "network_label": network, "middleware": "raw", "layout": layout, "repetition": 0, "throughput_mbps": 9.0,
        }
        for network in ("host", "weavenet")
        for layout in ("same", "split")
    ]  # fmt: skip
    shown = SimpleNamespace(
        limits=limit.shares(trials, "host"),
        networks=["host", "weavenet"],
        ordered=lambda labels: sorted(set(labels)),
        baseline="host",
        testbed="lab",
    )
    found = {table.caption: table.under for table in html_tables.limits(shown)}
    assert set(found) == {
        "Plain UDP, layout same: throughput relative to the limit on host",
        "Plain UDP, layout split: throughput relative to the limit on host",
    }
    assert all("n = 1" in caption and "no 95 % interval" in caption for caption in found.values())


def test_summary_writes_nothing(tmp_path):
    run = folders.single(tmp_path / "run")
    summarize(run)
    assert not (run.path / "report").exists() and not (run.path / "derived").exists()


def test_unwritable_folder_is_an_input_error(tmp_path):
    run = folders.single(tmp_path / "run")
    (run.path / "report").write_text("in the way")
    with pytest.raises(InputError) as error:
        write_report(run, None)
    assert "cannot write the report" in str(error.value) and error.value.remedy


@pytest.mark.parametrize("campaign", [
    {"schema": 1}, {"schema": 1, "testbed": "lab", "networks": [], "trials": None, "command": "k8sdds run"},
    {"schema": 1, "testbed": {"name": "cluster", "facts": None}, "networks": {"host": None}, "seed": 0},
])  # fmt: skip
def test_almost_all_keys_of_the_campaign_file_are_optional(tmp_path, campaign):
    run = folders.single(tmp_path / "run")
    (run.path / "campaign.json").write_text(json.dumps(campaign))
    data = content.read(RunFolder.open(run.path))
    assert html.write(data, [], tmp_path / "page.html").is_file() and summarize(run)["answer"]


def test_the_command_to_reproduce_selects_the_testbed(tmp_path):
    run = folders.single(tmp_path / "run")
    reached = {"testbed": "cluster", "kubeconfig": "/a b", "network": "flannel-vxlan", "meter": True}
    run = folders.with_campaign(run, testbed={"name": "lab", "facts": {"reached": reached}})
    page = html.render(content.read(run), [])
    options = "--testbed cluster --kubeconfig &#39;/a b&#39; --pod-network flannel-vxlan --meter --seed 4711"
    assert f"<pre>k8sdds run {run.path}/experiment.yaml {options}</pre>" in page


def test_importing_the_report_loads_no_large_library():
    code = (
        "import sys, k8sdds.report; print([m for m in ('pandas', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def changed(path, change, **plan):
    """Return a run folder whose attempts are changed."""
    run = folders.make(path, folders.Plan(payloads=(1024,), noise=0, histograms=False, **plan))
    return folders.changed(run, change)


def test_the_report_shows_what_networks_were_observed_to_do(tmp_path):
    observed = {
        "outer_protocol": "VXLAN", "outer_port": 6784, "added_bytes": 50, "cleartext": True, "programs": [],
        "link": None, "not_observed": {"rules": "Operation not permitted"},
    }  # fmt: skip
    impaired = observed | {"link": f"userspace {'0a' * 32}"}
    run = changed(
        tmp_path / "run", lambda a: {"fingerprint": (impaired if a["repetition"] else observed) if a["network"] == "weavenet" else None},
        networks=("host", "weavenet"),
    )  # fmt: skip
    page = html.render(content.read(run), [])
    section = page.partition("Observed on the link")[2].partition("</section>")[0]
    assert "VXLAN, port 6784, 50 bytes" in section and "Operation not permitted" in section
    assert "as they are, userspace 0a0a0a0a…" in section
    assert section.count("<tr>") == 2


def test_the_report_describes_a_network_once_for_each_ip_family(tmp_path):
    def change(attempt):
        ipv6 = attempt["repetition"] % 2
        observed = {"outer_protocol": "VXLAN", "outer_port": 8472, "added_bytes": 70 if ipv6 else 50}
        mtu = {"mtu_bytes": 1430 if ipv6 else 1450, "ip_families": "ipv6" if ipv6 else "ipv4"}
        return mtu | {"fingerprint": observed | {"not_observed": {}}}

    page = html.render(
        content.read(changed(tmp_path / "run", change, networks=("host", "flannel-vxlan"))), []
    )
    assert re.search(r"flannel-vxlan, IPv4</th>\n?<td[^>]*>1450<", page)
    assert re.search(r"flannel-vxlan, IPv6</th>\n?<td[^>]*>1430<", page)
    section = page.partition("Observed on the link")[2].partition("</section>")[0]
    assert section.count("50 bytes") == section.count("70 bytes") == 2


def test_subscribers_that_were_served_differently_are_drawn(undrawn, tmp_path):
    def change(attempt):
        delivered = (
            {"sub0": 100, "sub1": 300} if attempt["network"] == "weavenet" else {"sub0": 200, "sub1": 200}
        )
        return {"subscribers": 2, "link_bytes": {"delivered_samples": delivered}}

    plan = {"networks": ("host", "weavenet"), "tests": ("throughput",), "repetitions": 2}
    read = content.read(changed(tmp_path / "run", change, **plan))
    assert "host 100 to 100; weavenet 50.0 to 150" in details.fairness(read, read.settings[0], tmp_path).alt


def test_throughput_is_drawn_against_latency(reports, tmp_path):
    read = reports("single").content
    figure = trade_off.draw(read, read.settings[0], tmp_path)
    assert (tmp_path / "trade-off.svg").exists() and figure.title.startswith("Throughput against p90 latency")


def test_only_large_tables_of_overheads_have_shades_and_those_of_seen_differences(reports):
    shown = reports("paper").content
    tables = [table for setting in shown.settings for table in html_tables.overheads(shown, setting)]
    assert all(any(cell.shade for row in table.rows for cell in row) for table in tables)
    assert not any(
        cell.shade for table in tables for row in table.rows for cell in row if cell.mark == "unseen"
    )
    few = reports("single").content
    tables = [table for setting in few.settings for table in html_tables.overheads(few, setting)]
    assert tables and not any(cell.shade for table in tables for row in table.rows for cell in row)


def test_the_question_is_the_title_and_the_verdict_follows(reports, tmp_path):
    run = folders.make(tmp_path / "run", folders.Plan(histograms=False))
    (run.path / "experiment.yaml").write_text("name: x\ntitle: What does <it> cost?\n")
    page = html.render(content.read(RunFolder.open(run.path)), [])
    header = page[page.index("<header>") : page.index("</header>")]
    assert "<h1>What does &lt;it&gt; cost?</h1>" in header
    assert header.index("</h1>") < header.index('class="verdict"') < header.index('class="sub"')
    assert "Throughput, 1 KiB: " in header


def test_warnings_that_differ_in_numbers_are_one_kind(tmp_path):
    run = folders.single(tmp_path / "run")
    for number, attempt in enumerate(run.attempts()):
        other = {"trial_id": f"w{number}", "warnings": [f"disturbed: sub0 lost {number + 2} % in 0.5 s"]}
        run.append_attempt(attempt | other)
    (text, n), = content.read(run).warnings  # fmt: skip
    assert text == f"disturbed: sub0 lost 2 to {n + 1} % in 0.5 s" and n > 2


@pytest.mark.long
@pytest.mark.parametrize("plan", [
    folders.Plan(repetitions=5, details=True),
    folders.Plan(payloads=(1024,), repetitions=1, details=True, conditions=[
        {"reliability": reliability, "receive_mode": mode, "rate": rate}
        for reliability in ("reliable", "best-effort") for mode in ("listener", "waitset", "spin") for rate in (0, 10, 100, 1000)
    ] + [{"layout": "free"}]),
], ids=["one-setting", "25-settings"])  # fmt: skip
def test_the_page_of_250_trials_has_at_most_2_mb(tmp_path, plan):
    run = folders.make(tmp_path / "run", plan)
    assert len(run.attempts()) == 250
    page = write_report(run, None)
    assert page.read_text().count("<figure ") > 6
    assert page.stat().st_size <= 2_000_000
