"""What links do to packets: short and long forms, directions, ids, descriptions, contradictions, outages and files."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from k8sdds import links
from k8sdds.campaign import experiments, start
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.record import description
from k8sdds.campaign.trial_loop import plan_json
from k8sdds.model import link_files
from k8sdds.model.impairments import Delay, Direction, Loss, Queue, Rate
from k8sdds.model.link import Link
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.outages import Outage, Phase
from k8sdds.model.trial import AXES, Cell
from k8sdds.results.run_folder import SCHEMA, RunFolder
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.testbeds import Block


def link(**keys: Any) -> Link:
    (found,) = LinkChoice.model_validate(keys).each()
    return found


def cell(of: Link) -> Cell:
    return Cell(network="host", test="throughput", payload_bytes=1024, link=of)


# -- forms and ids ------------------------------------------------------------------------------------


def test_both_forms_of_a_constant_rate_are_one_link() -> None:
    short, long = link(rate_mbit=10), link(rate={"mbit": "10 Mbit/s"})
    assert short == long and cell(short).cell_id == cell(long).cell_id
    assert not long.exceeds_short_keys


def test_delay_and_loss_of_the_whole_way_apply_once() -> None:
    whole = link(delay_us=2000, loss_percent=1, up={"duplicate_percent": 3})
    assert whole.directions == {
        "up": Direction(delay=Delay(mean_us=2000), duplicate_percent=3),
        "down": Direction(loss=Loss(percent=1, udp_only=True)),
    }
    # The same for each link would delay packets twice.
    assert link(delay={"mean_us": 2000}).longest_delay_us == 2 * whole.longest_delay_us


def test_the_ids_of_links_without_new_keys_are_those_of_earlier_versions() -> None:
    assert cell(Link(rate_mbit=100, loss_percent=1.5, delay_us=200)).canonical() == (
        '{"link":{"delay_us":200,"loss_percent":1.5,"rate_mbit":100},"network":"host","payload_bytes":1024,'
        '"test":"throughput"}'
    )
    assert cell(Link(rate_mbit=100)).cell_id == "f56518ef1e7d"


def test_a_direction_replaces_whole_parts() -> None:
    directions = link(
        delay={"mean_us": 2000}, loss={"percent": 1}, rate={"mbit": 10}, queue={"ms": 50},
        up={"loss": {"p_percent": 1, "r_percent": 25}, "rate": {"mbit": 5}}, down={"duplicate_percent": 1},
    ).directions  # fmt: skip
    both = {"delay": Delay(mean_us=2000), "queue": Queue(ms=50)}
    assert directions == {
        "up": Direction(**both, loss=Loss(p_percent=1, r_percent=25), rate=Rate(mbit=5)),
        "down": Direction(**both, loss=Loss(percent=1), rate=Rate(mbit=10), duplicate_percent=1),
    }
    assert list(Link().directions.values()) == [Direction(), Direction()]


PARTS = {
    "delay": st.builds(
        lambda mean, share, shape, correlated: {
            "mean_us": mean, "jitter_us": mean * share, "distribution": shape if mean * share else "normal",
            "correlation_percent": correlated if mean * share else 0,
        },
        st.floats(1, 1e6), st.floats(0, 1), st.sampled_from(["normal", "uniform", "pareto"]), st.floats(0, 99),
    ),
    "loss": st.one_of(
        st.builds(lambda percent: {"percent": percent}, st.floats(0, 99)),
        st.builds(
            lambda p, r, h: {"p_percent": p, "r_percent": r, "h_percent": h},
            st.floats(0, 100), st.floats(0.01, 100), st.floats(0, 99),
        ),
    ),
    "rate": st.builds(lambda mbit: {"mbit": mbit}, st.floats(0.01, 1000)),
    "duplicate_percent": st.floats(0, 99),
}  # fmt: skip
DIRECTIONS = st.fixed_dictionaries({}, optional=PARTS)


@settings(max_examples=50)
@given(both=DIRECTIONS, up=DIRECTIONS, down=DIRECTIONS, every=st.booleans())
def test_a_link_is_the_same_after_yaml_a_trial_and_a_record(
    both: dict[str, Any], up: dict[str, Any], down: dict[str, Any], every: bool
) -> None:
    keys = {**both, "up": up, "down": down, "outages": [{"every_s": 5, "for_s": 1}] if every else []}
    known = link(**keys)
    text = yaml_text.dump(LinkChoice.model_validate(keys).model_dump(mode="json", exclude_none=True))
    assert [*yaml_text.parse(text, LinkChoice, "link.yaml").each()] == [known]
    again = Cell.model_validate_json(cell(known).model_dump_json())
    assert (again.link, again.cell_id) == (known, cell(known).cell_id)
    assert AXES["link"].parsed(AXES["link"].recorded(known)) == known
    assert AXES["link"].phrase(AXES["link"].recorded(known)) == known.describe()
    for direction in known.directions.values():
        if direction.loss is not None:
            assert 0 <= (direction.loss.mean_percent or 0) <= 100


@given(st.floats(0, 99))
def test_independent_loss_has_the_states_of_gilbert_and_elliott(percent: float) -> None:
    loss = Loss(percent=percent)
    assert loss.states == (percent, 100 - percent, 0, 100)
    assert math.isclose(loss.mean_percent or 0, percent, abs_tol=1e-9)
    assert Loss(p_percent=1, r_percent=4, h_percent=50, k_percent=90).mean_percent == pytest.approx(18)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"up": {"delay": {"mean_us": 2000, "jitter_us": 500, "distribution": "pareto"}}},
         "links up 2 ms ± 500 µs delay (pareto)"),
        ({"loss": {"p_percent": 1, "r_percent": 25, "k_percent": 99}},
         "links bursts of loss (p 1 %, r 25 %, k 99 %)"),
        ({"rate_mbit": 10, "queue": {"packets": 100, "discipline": "codel"}, "mtu": 9000},
         "links 10 Mbit/s, queue of 100 packets (codel), MTU 9000"),
        ({"outages": {"every_s": 10, "for_s": 0.5}, "nodes": "publishers"},
         "links only of publishers, outage of 0.5 s every 10 s"),
        ({"outages": [{"at_s": 1, "for_s": 0.5}], "engine": "userspace", "name": "hall", "mtu": 9000},
         "links hall, userspace engine, MTU 9000"),
    ],
)  # fmt: skip
def test_a_link_is_described_by_what_is_not_the_default(keys: dict[str, Any], text: str) -> None:
    assert link(**keys).describe() == text


# -- contradictions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "place", "message"),
    [
        ({"delay": {"jitter_us": 5}}, "delay.jitter_us", "needs mean_us"),
        ({"delay": {"mean_us": 5, "jitter_us": 6}}, "delay.jitter_us", "never negative"),
        ({"delay": {"mean_us": 5, "distribution": "pareto"}}, "delay.distribution", "without jitter_us"),
        ({"delay": {"mean_us": 5, "correlation_percent": 5}}, "delay.correlation_percent", "without jitter_us"),
        ({"up": {"delay": {"reorder_percent": 5}}}, "up.delay.reorder_percent", "needs mean_us"),
        ({"delay": {"file": "d.txt", "mean_us": 5}}, "delay.file", "leave out mean_us"),
        ({"delay": 5}, "delay", "must be a mapping, such as {mean_us: 2000}"),
        ({"delay": {"mean_us": True}}, "delay.mean_us", "not true or false"),
        ({"delay_us": 5, "delay": {"mean_us": 5}}, "delay_us", "leave out one"),
        ({"delay_us": 5, "down": {"delay": {"mean_us": 5}}}, "delay_us", "down.delay state the same"),
        ({"loss_percent": 5, "up": {"loss": {"percent": 5}}}, "loss_percent", "up.loss state the same"),
        ({"loss_percent": 5, "nodes": "publishers"}, "loss_percent", "set loss of these links"),
        ({"loss": {}}, "loss", "set percent"),
        ({"loss": {"p_percent": 1}}, "loss.p_percent", "needs r_percent"),
        ({"loss": {"r_percent": 1}}, "loss.r_percent", "needs p_percent"),
        ({"loss": {"percent": 1, "p_percent": 1, "r_percent": 1}}, "loss.percent", "independent"),
        ({"loss": {"percent": 1, "h_percent": 1}}, "loss.h_percent", "needs p_percent and r_percent"),
        ({"loss": {"p_percent": 1, "r_percent": 1, "h_percent": 90, "k_percent": 80}}, "loss.h_percent", "below"),
        ({"loss": {"percent": 100}}, "loss.percent", "less than 100"),
        ({"loss": {"file": "l", "percent": 1}}, "loss.file", "leave out percent"),
        ({"loss": {"file": "l", "sha256": "xyz"}}, "loss.sha256", "expected text that matches"),
        ({"rate": {}}, "rate", "set mbit or file"),
        ({"rate": {"file": "t", "mbit": 1}}, "rate.file", "leave out mbit"),
        ({"queue": {"ms": 50}}, "queue", "only in front of a rate"),
        ({"up": {"queue": {"ms": 50}, "rate": {"mbit": 1}}, "down": {"queue": {"ms": 5}}}, "down.queue", "rate"),
        ({"rate_mbit": 1, "queue": {"discipline": "codel"}}, "queue", "set one of packets, bytes and ms"),
        ({"rate_mbit": 1, "queue": {"ms": 5, "packets": 5}}, "queue.ms", "not packets and ms"),
        ({"duplicate_percent": 100}, "duplicate_percent", "less than 100"),
        ({"nodes": "publishers"}, "nodes", "nothing impairs"),
        ({"outages": {"for_s": 1}}, "outages", "set at_s, every_s, or both"),
        ({"outages": {"at_s": 1, "for_s": 1, "fading_s": 1}}, "outages.fading_s", "kind: wifi"),
        ({"outages": {"at_s": 1, "every_s": 2, "for_s": 1, "kind": "wifi"}}, "outages.for_s", "no time between"),
        ({"outages": {"at_s": 0.5, "for_s": 1, "kind": "wifi"}}, "outages.at_s", "before the measured interval"),
        ({"outages": [{"at_s": 5, "for_s": 2}, {"at_s": 4, "for_s": 1.5}]}, "outages[0].at_s", "ends at 5.5 s"),
        ({"outages": [{"at_s": 5, "for_s": 2}, {"every_s": 4, "for_s": 1.5}]}, "outages[1].every_s", "only outage"),
        ({"engine": "kernel", "loss": {"file": "l.txt"}}, "engine", "use userspace or auto"),
        ({"engine": "kernel", "delay": {"mean_us": 5, "jitter_us": 1, "correlation_percent": 5}}, "engine",
         "up.delay is correlated, but delays of netem are not, whatever correlation it has: use userspace or auto"),
        ({"engine": "kernel", "delay": {"mean_us": 5e6, "jitter_us": 2e6}}, "engine", "above 1.2 s"),
        ({"engine": "kernel", "rate_mbit": 5, "up": {"delay": {"mean_us": 5, "reorder_percent": 5}}}, "engine",
         "do not wait for the rate"),
        ({"engine": "kernel", "down": {"loss": {"percent": 5}, "duplicate_percent": 5}}, "engine", "down.loss is changed"),
        ({"engine": "kernel", "outages": {"at_s": 5, "for_s": 1}}, "engine", "netem has no outages"),
        ({"outages": {"every_s": 0.09, "for_s": 0.01}}, "outages.every_s", "at least 0.1"),
        ({"outages": {"at_s": 5, "for_s": 1, "kind": "address"}}, "outages.kind", "'link' or 'wifi'"),
        ({"outages": {"at_s": 5, "for_s": 1, "kind": "wifi"}}, "outages.kind", "needs a constant rate in both directions: set rate_mbit"),
        ({"rate": {"file": "r"}, "outages": {"at_s": 5, "for_s": 1, "kind": "wifi"}}, "outages.kind", "constant rate"),
        ({"rate_mbit": 9, "down": {"rate": {"mbit": 6}}, "outages": {"at_s": 5, "for_s": 1, "kind": "wifi"}},
         "outages", "the rate of down (6 Mbit/s) would not fall to 6: set a lower fading_mbit"),
    ],
)  # fmt: skip
def test_a_contradiction_names_its_key(keys: dict[str, Any], place: str, message: str) -> None:
    data = {"name": "x", "link": keys, "sweeps": [{"networks": ["host"]}]}
    with pytest.raises(ValidationError) as caught:
        experiments.Experiment.model_validate(data, context=experiments.KNOWN)
    wrong = yaml_text.mistakes(caught.value, data, experiments.Experiment)
    assert any(each.key == f"link.{place}" and message in each.message for each in wrong), wrong


# -- outages ------------------------------------------------------------------------------------------


def test_outages_repeat_and_the_rate_of_wifi_falls_before() -> None:
    assert [*Outage(every_s=10, for_s=0.5).starts(35)] == [5, 15, 25]
    assert [*Outage(at_s=1, every_s=10, for_s=0.5).starts(21)] == [1, 11]
    assert [*Outage(at_s=3, for_s=0.5).starts(3)] == []
    wifi = Outage(at_s=2, for_s=0.5, kind="wifi", fading_s=1.5, fading_mbit=1)
    assert wifi.phases(10) == [Phase(500_000, 1_500_000, 1), Phase(2_000_000, 500_000)]
    later = {"at_s": 6, "for_s": 0.5}
    both = link(rate_mbit=10, outages=[later, wifi.model_dump()]).outage_phases(10)
    assert both == [*wifi.phases(10), Phase(6_000_000, 500_000)]


@given(every=st.integers(2, 50), share=st.floats(0.01, 0.4), length=st.integers(1, 500))
def test_outages_of_a_period_never_overlap(every: int, share: float, length: int) -> None:
    parts = Outage(every_s=every, for_s=every * share, kind="wifi", fading_s=every * share).phases(length)
    assert all(a.at_us + a.for_us <= b.at_us for a, b in itertools.pairwise(parts))
    assert len(parts) == 2 * math.ceil(max(0, length - every / 2) / every)


# -- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "content", "values"),
    [
        (Delay, "# of a drive\n100\n\n250.5 # late\n", (100.0, 250.5)),
        (Loss, "0011\n0 1\n", "001101"),
        (Rate, "0\n5\n5\n12\n", (0, 5, 5, 12)),
    ],
)
def test_values_are_those_of_the_file(part: Any, content: str, values: Any, tmp_path: Path) -> None:
    (tmp_path / "values").write_text(content)
    (checked,) = link_files.files_of(
        link_files.checked(Link(**{part.__name__.lower(): {"file": str(tmp_path / "values")}}))
    )
    assert link_files.values(checked) == values
    # They are read once: a campaign does not depend on the file any more.
    (tmp_path / "values").write_text("changed")
    assert link_files.values(checked) == values
    with pytest.raises(InputError, match="values"):
        link_files.checked(Link(**{part.__name__.lower(): checked}))


def test_the_longest_delay_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "delays.txt").write_text("100\n4000\n200\n")
    both = links.resolve(LinkChoice.model_validate({"delay": {"file": str(tmp_path / "delays.txt")}})).link
    assert both.longest_delay_us == 8000
    assert link(up={"delay": {"mean_us": 100, "jitter_us": 10}}).longest_delay_us == 140


def test_a_trace_has_the_rate_of_its_packets() -> None:
    # One packet of 1504 bytes in each millisecond: 12 Mbit/s, as Mahimahi's documentation states.
    assert link_files.mean_mbit(tuple(range(1, 1001))) == pytest.approx(12.03, abs=0.01)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("delay", b"", "it has no values"),
        ("delay", b"# nothing\n\n", "it has no values"),
        ("delay", b"1\n-1\n", "line 2: '-1' is not a delay in microseconds, 0 to 60,000,000"),
        ("delay", b"1\nnan\n", "line 2: 'nan' is not a delay"),
        ("delay", b"1e3\n", "line 1: '1e3'"),
        ("delay", b"60000001\n", "line 1"),
        ("delay", b"1\n\x1b[2J" + b"9" * 500, "line 2: '\N{REPLACEMENT CHARACTER}[2J"),
        ("delay", b"\xff\xfe", "it is not UTF-8 text"),
        ("delay", b"1" * (17 * 1024 * 1024), "is larger than 16,777,216 bytes"),
        ("loss", b"0102\n", "line 1: '2' is not 0 (arrives) or 1 (is lost)"),
        ("loss", b"11\n11\n", "every packet is lost: use `outages`"),
        ("loss", b"01" * 600_000, "it has more than 1,000,000 values"),
        ("rate", b"5\n4\n", "line 2: 4 is before the previous time, 5"),
        ("rate", b"0\n0\n", "the last time is 0"),
        ("rate", b"1.5\n", "line 1: '1.5' is not a time in milliseconds"),
        ("rate", b"99999999\n", "line 1: '99999999' is not a time in milliseconds, 0 to 86,400,000"),
        ("rate", b"1\n" * 100_000, "Mbit/s: at most 400,000"),
    ],
)
def test_an_unusable_file_is_named_with_its_line(
    part: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "values.txt").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        link_files.checked(LinkChoice.model_validate({part: {"file": str(tmp_path / "values.txt")}}))
    assert refused.value.message.count("values.txt") == 1 and "\n" not in refused.value.message


@pytest.mark.parametrize("part", ["delay", "rate"])
def test_a_file_has_a_largest_number_of_lines(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_files, "MAX_VALUES", 3)
    (tmp_path / "values.txt").write_text("1\n" * 4)
    with pytest.raises(InputError, match="it has more than 3 values"):
        link_files.checked(LinkChoice.model_validate({part: {"file": str(tmp_path / "values.txt")}}))


@pytest.mark.parametrize(("file", "message"), [("missing.txt", "No such file"), (".", "directory")])
def test_a_file_that_is_none_is_named(file: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        link_files.checked(Link(loss=Loss(file=str(tmp_path / file))))


EXPERIMENT = """\
name: mine
link:
  up: {delay: {file: delays.txt}}
sweeps:
  - networks: host
  - networks: host
    test: latency
    link: {rate: {file: rate.trace}, loss_percent: 1}
"""


def expansion(folder: Path, delays: str = "100\n200\n", trace: str = "delays.txt") -> Expansion:
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_text(EXPERIMENT.replace("rate.trace", trace))
    (folder / "delays.txt").write_text(delays)
    return expand(experiments.load(str(folder / "mine.yaml")))


def test_the_content_of_a_file_identifies_a_cell_not_its_place(tmp_path: Path) -> None:
    here, there = expansion(tmp_path / "a").cells, expansion(tmp_path / "b").cells
    other = expansion(tmp_path / "c", "100\n300\n").cells
    assert [each.cell_id for each in here] == [each.cell_id for each in there]
    assert not {each.cell_id for each in here} & {each.cell_id for each in other}
    assert str(tmp_path) not in here[0].canonical()
    (trial, *_) = expansion(tmp_path / "a").trials("lab")
    assert description(trial)["link"]["up"]["delay"]["file"] == "delays.txt"
    assert "up delay from delays.txt" in trial.describe()


def test_the_run_folder_has_the_files_and_gives_the_same_cells(tmp_path: Path) -> None:
    original = expansion(tmp_path / "a")
    folder = tmp_path / "run"
    plan = {"schema": SCHEMA} | plan_json([Block(0, tuple(original.trials("lab")))])
    run = RunFolder.create(folder, plan, *start.run_folder_files(original))
    (tmp_path / "a" / "delays.txt").unlink()
    copied = expand(experiments.load(str(folder / "experiment.yaml")))
    assert [each.cell_id for each in copied.cells] == [each.cell_id for each in original.cells]
    (part,) = link_files.files_of(copied.cells[0].link)
    assert part.file == f"{folder}/link-files/{part.sha256[:8]}/delays.txt"
    assert link_files.values(part) == (100.0, 200.0)
    # The plan names the original, and a resumed campaign uses the copy.
    trials, _ = start._planned(run, copied)
    assert [trial.cell for trial in trials] == [trial.cell for trial in copied.trials("lab")]
    # The record of a resumed campaign is that of its start.
    records = [description(found.trials("lab")[0])["link"] for found in (original, copied)]
    assert records[0] == records[1]


def test_a_checksum_that_is_given_is_verified(tmp_path: Path) -> None:
    (tmp_path / "loss.txt").write_text("01")
    with pytest.raises(InputError, match="has the SHA-256"):
        links.resolve(LinkChoice(loss=Loss(file=str(tmp_path / "loss.txt"), sha256="0" * 64)))
