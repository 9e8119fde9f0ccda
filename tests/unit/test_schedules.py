"""Test recorded schedules: the format of the files, and the experiments and applications that name them."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from k8sdds.analysis import background_cost
from k8sdds.campaign import applications, contradictions, experiments, preflight, start
from k8sdds.campaign.expansion import Expansion, background, candidates, expand
from k8sdds.campaign.launches import Launches
from k8sdds.campaign.record import description
from k8sdds.cli.recommend import _sent
from k8sdds.middleware import Surroundings, program_of
from k8sdds.model import schedule_file
from k8sdds.model.application import ApplicationExperiment, Flow
from k8sdds.model.experiment import Sweep
from k8sdds.model.measurement import Inputs, ParticipantPaths
from k8sdds.model.schedule_file import MAX_PERIOD_US, MAX_SAMPLES, Schedule
from k8sdds.model.settings import MAX_SAMPLE_BYTES
from k8sdds.model.trial import Endpoint
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError
from tests.unit import builders

TWO_SIZES = "# /camera\nperiod 100000  # 100 ms\n0 1000\n\n10 60000\n10 60000\n\t60000  1000\r\n"
EXPERIMENT = "name: mine\nsweeps:\n  - {networks: host, test: paced, schedule: camera.txt, publishers: 2}\n"
APPLICATION = """\
name: robot
choices: {networks: [host], middleware: [cyclonedds]}
duration_s: 2
flows:
  - {name: camera, schedule: camera.txt, subscribers: 2, missed_percent: 5}
  - {name: state, payload_bytes: 100, rate: 50}
"""


# -- the format -------------------------------------------------------------------------------------------


def test_a_file_states_when_samples_are_due_and_their_sizes() -> None:
    found = schedule_file.parse(TWO_SIZES)
    assert (found.period_us, found.samples, found.largest_bytes) == (100_000, 4, 60_000)
    assert (found.rate, found.mean_bytes) == (40, 30_500)


SAMPLES = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(28, MAX_SAMPLE_BYTES)), min_size=1, max_size=50
).map(lambda steps: [(sum(step for step, _ in steps[1 : i + 1]), size) for i, (_, size) in enumerate(steps)])


@given(SAMPLES, st.integers(1, 10**9), st.lists(st.text("abc #1", max_size=20), max_size=3))
def test_what_is_written_is_read_again(
    samples: list[tuple[int, int]], rest_us: int, comments: list[str]
) -> None:
    period_us = samples[-1][0] + rest_us
    if not 0.001 <= len(samples) * 1e6 / period_us <= 1e7:
        return
    found = schedule_file.parse(schedule_file.text(period_us, samples, comments))
    due_us, sizes = zip(*samples, strict=True)
    assert found == Schedule(period_us, array("q", due_us), array("q", sizes))
    assert schedule_file.of_word(found.word()) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no samples"), ("# nothing\n", "no samples"), ("period 100\n", "no samples"),
        ("0 100\n", "line 1: '0 100' is not period"), ("period 0\n0 28", "is not period"),
        ("period 1000\n\nperiod 1000\n0 28", "line 3"), (f"period {MAX_PERIOD_US + 1}\n0 28", "is not period"),
        ("period 1000\n1 28\n", "line 2: the first sample is due at 0"),
        ("period 1000\n0 28\n5 28\n4 28\n", "line 4: 4 is before the previous time, 5"),
        ("period 1000\n0 28\n1000 28\n", "line 3: 1000 is not before the end"),
        ("period 1000\n0 27\n", "28 to 67,108,864 bytes, not 27"), ("period 1000\n0 67108865\n", "not 67108865"),
        ("period 1000\n0\n", "'0' is not MICROSECONDS BYTES"), ("period 1000\n0 28 5\n", "is not MICROSECONDS"),
        ("period 1000\n-0 28\n", "is not MICRO"), ("period 1000\n0 1e3\n", "is not MICRO"),
        ("period 1000\n0 ٣٠\n", "is not MICRO"), ("period 1000\n0\u00a028\n", "is not MICRO"),
        ("period 1000\n0 28\x0b1 28\n", "is not MICRO"), ("period 1000\n0 1000000000000000\n", "is not MICRO"),
        ("period 2000000000\n0 28\n", "0.0005 samples per second"),
        ("period 1\n" + "0 28\n" * 11, "1.1e+07 samples per second"),
        ("period 86400\n" + "0 28\n" * (MAX_SAMPLES + 1), "more than 100,000 samples"),
    ],
)  # fmt: skip
def test_everything_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        schedule_file.parse(text)
    assert why in str(refused.value) and len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"\xff\n", "not UTF-8"),
        (b"#" * (4 << 20) + b"\n", "larger than"),
        (b"x", "line 1"),
    ],
)
def test_unusable_files(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "camera.txt").write_bytes(content)
    with pytest.raises(InputError, match=why) as refused:
        schedule_file.read(str(tmp_path / "camera.txt"))
    assert refused.value.message.count("camera.txt") == 1


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "camera.txt")
    with pytest.raises(InputError, match="not a regular file"):
        schedule_file.read(str(tmp_path / "camera.txt"))


# -- experiments ------------------------------------------------------------------------------------------


def written(folder: Path, text: str, schedule: str = TWO_SIZES) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "camera.txt").write_text(schedule)
    (folder / "mine.yaml").write_text(text)
    return folder / "mine.yaml"


def expansion(folder: Path, text: str = EXPERIMENT, schedule: str = TWO_SIZES) -> Expansion:
    return expand(experiments.load(str(written(folder, text, schedule))))


def test_the_file_states_size_and_rate_of_a_cell(tmp_path: Path) -> None:
    (cell,) = expansion(tmp_path).cells
    assert (cell.payload_bytes, cell.rate) == (60_000, 40)
    assert "schedule camera.txt" in cell.describe()
    (trial, *_) = expansion(tmp_path).trials("lab")
    assert description(trial)["schedule"] == "camera.txt"
    assert contradictions.unsupported(cell) is None


def test_the_content_identifies_a_cell_not_the_place(tmp_path: Path) -> None:
    (here,), (there,) = expansion(tmp_path / "a").cells, expansion(tmp_path / "b").cells
    # The same largest size and rate.
    (other,) = expansion(tmp_path / "c", schedule=TWO_SIZES.replace("0 1000", "0 2000")).cells
    assert here.schedule != there.schedule
    assert here.cell_id == there.cell_id != other.cell_id


def test_schedules_are_an_axis(tmp_path: Path) -> None:
    (tmp_path / "late.txt").write_text("period 100000\n0 64\n99999 64\n")
    text = EXPERIMENT.replace("camera.txt", "[camera.txt, late.txt]")
    assert [(cell.payload_bytes, cell.rate) for cell in expansion(tmp_path, text).cells] == [
        (60_000, 40),
        (64, 20),
    ]


def test_sizes_and_rates_are_stated_once() -> None:
    usual = {"networks": ["host"], "test": ["paced"], "schedule": ["a.txt"]}
    assert Sweep.model_validate(usual | {"payload_bytes": [1024], "rate": [0]})
    for key, value in (("payload_bytes", 64), ("rate", 5), ("rate_profile", "burst:2")):
        with pytest.raises(ValidationError, match=f"leave out {key}"):
            Sweep.model_validate(usual | {key: value})


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("throughput", "only a paced test follows a schedule"),
        ("latency", "only a paced test follows a schedule"),
        ("{name: capacity, p99_ms: 10, max_subscribers: 8}", "constant rate"),
        ("outage", "constant rate"),
        ("tcp-stream", "schedule has no effect in a tcp-stream test"),
    ],
)
def test_other_tests_refuse_schedules(tmp_path: Path, test: str, why: str) -> None:
    (cell,) = expansion(
        tmp_path, EXPERIMENT.replace("paced", test).replace("publishers: 2", "layout: split")
    ).cells
    assert why in str(contradictions.unsupported(cell))


@pytest.mark.parametrize("text", [EXPERIMENT, APPLICATION])
@pytest.mark.parametrize(
    ("period_us", "rates"),
    [(4_500_000, (2, 0.889)), (300_000_000, (2, 0.0133)), (1_500_000, (4, 2.67)), (2_000_000, None), (80_000, None)],
)  # fmt: skip
def test_trials_that_send_parts_of_periods_with_other_rates_are_noted(
    tmp_path: Path, text: str, period_us: int, rates: tuple[float, float] | None
) -> None:
    text = text.replace("name: mine\n", "name: mine\nduration_s: 2\n")
    path = written(tmp_path, text, TWO_SIZES.replace("period 100000", f"period {period_us}"))
    notes = [
        note
        for note in preflight.notes(expand(applications.load_experiment(str(path))))
        if "camera.txt" in note
    ]
    assert len(notes) == (rates is not None)
    if rates is not None:
        assert f"send {rates[0]:g} samples per second of camera.txt, which has {rates[1]:g}" in notes[0]
        assert f"a multiple of {period_us / 1e6:g}" in notes[0]


def test_the_rate_of_a_part() -> None:
    schedule = schedule_file.parse("period 1000000\n0 28\n100000 28\n100000 28\n")
    seconds = (0.05, 0.1, 0.5, 1, 1.5, 4)
    assert [schedule.rate_of(each) for each in seconds] == pytest.approx([20, 10, 6, 3, 4, 3])


@pytest.mark.parametrize("text", [EXPERIMENT, APPLICATION])
def test_the_run_folder_is_complete(tmp_path: Path, text: str) -> None:
    """The copy of the experiment names the copy of the file, so that it expands to the same cells elsewhere."""
    original = expand(applications.load_experiment(str(written(tmp_path / "a", text))))
    folder = builders.written_run(original, tmp_path / "run")
    (tmp_path / "a" / "camera.txt").unlink()
    loaded = experiments.load(str(folder / "experiment.yaml"))
    assert [description(trial) for trial in expand(loaded).trials("lab")] == [
        description(trial) for trial in original.trials("lab")
    ]
    assert [cell.cell_id for cell in expand(loaded).cells] == [cell.cell_id for cell in original.cells]
    if isinstance(loaded, ApplicationExperiment):
        written(tmp_path / "b", text)
        assert _sent(loaded.application) == _sent(applications.load(str(tmp_path / "b" / "mine.yaml")))
    # The trials of the plan name the user's file, and those that planners add after `--resume` the copy.
    for trial, *_ in (original.trials("lab"), expand(loaded).trials("lab")):
        launches = Launches(RunFolder(folder), [trial], lambda facts: None)
        copy = launches._schedule(trial)
        assert copy is not None and copy.read_bytes() == TWO_SIZES.encode()
    copy.write_text(TWO_SIZES + "# changed\n")
    with pytest.raises(InputError, match="another content than when the experiment was read"):
        launches._schedule(trial)


def test_files_of_equal_content_are_all_copied(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("camera.txt", "[camera.txt, same.txt]")
    (tmp_path / "same.txt").write_text(TWO_SIZES)
    original = expansion(tmp_path, text)
    copied, files = start.run_folder_files(original)
    assert len(original.cells) == 1
    (sweep,) = yaml.safe_load(copied)["sweeps"]
    assert set(sweep["schedule"]) == {name for name in files if name.startswith("schedules/")}


def test_a_file_that_changes_while_networks_are_built_is_refused(tmp_path: Path) -> None:
    original = expansion(tmp_path)
    (tmp_path / "camera.txt").write_text(TWO_SIZES + "# changed\n")
    with pytest.raises(InputError, match="another content than when the experiment was read"):
        start.run_folder_files(original)


def test_only_publishers_read_the_file(tmp_path: Path) -> None:
    (trial, *_) = expansion(tmp_path).trials("cluster")
    pods = trial.cell.participants
    endpoints = {pod.name: Endpoint(f"10.0.0.{i}", "eth0", None, 1500) for i, pod in enumerate(pods)}
    local = Inputs(schedule=tmp_path / "camera.txt")
    in_pod = local.placed(lambda kind, file: Path("/run/k8sdds") / kind / file.name)
    paths = ParticipantPaths("perftest", Path("/raw"), in_pod)
    for pod in pods:
        argv = program_of(trial.cell).command(trial, pod, Surroundings(endpoints, 7, paths)).argv
        assert ("-schedule" in argv) == pod.publishes and "-pubRate" not in argv
        assert argv[argv.index("-dataLen") + 1] == "60000"
        if pod.publishes:
            assert argv[argv.index("-schedule") + 1] == "/run/k8sdds/schedule/camera.txt"
    assert local.copied_to(in_pod) == {"/run/k8sdds/schedule/camera.txt": tmp_path / "camera.txt"}


def test_the_payload_of_attempts_is_what_arrived() -> None:
    row = {
        "payload_bytes": 60_000,
        "received": 4,
        "link_bytes": {"delivered_bytes": {"sub0": 61_000, "sub1": 62_000}},
    }
    assert background_cost._payload_bytes(row | {"schedule": "camera.txt"}) == 123_000
    assert background_cost._payload_bytes(row) == 240_000


# -- applications -----------------------------------------------------------------------------------------


def test_a_flow_is_what_its_file_states(tmp_path: Path) -> None:
    loaded = applications.load(str(written(tmp_path, APPLICATION)))
    camera, state = loaded.flows
    assert (camera.payload_bytes, camera.rate, state.rate) == (60_000, 40, 50)
    assert "camera.txt (up to 60000 B × 40/s)" in camera.describe()
    assert camera.requirements[0].text == "98 % of 40 samples/s"
    # The other flows run as streams of the mean rate, not as if all samples had the largest size.
    assert camera.payload_mbit == pytest.approx(40 * 30_500 * 8e-6)
    load = background(loaded, state, "unicast")
    assert load.flows * load.rate_mbit == pytest.approx(2 * camera.payload_mbit, rel=0.01)
    cells = candidates(applications.experiment(loaded)).measurable[0].cells
    assert [cell.payload_bytes for cell in cells] == [60_000, 100]
    assert cells[0].schedule == str(tmp_path / "camera.txt")


@pytest.mark.parametrize(
    ("flow", "key"),
    [
        ({"rate": 5}, "payload_bytes"), ({"payload_bytes": 64}, "rate"),
        ({"schedule": "a.txt", "rate": 5}, "rate"), ({"schedule": "a.txt", "payload_bytes": 64}, "payload_bytes"),
        ({"schedule_sha256": "ab" * 32, "rate": 5, "payload_bytes": 64}, "schedule_sha256"),
        ({"schedule": "a.txt", "schedule_sha256": "ab" * 32}, "schedule_sha256"),
    ],
)  # fmt: skip
def test_a_flow_states_sizes_and_times_once(flow: dict[str, object], key: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Flow.model_validate({"name": "camera"} | flow)
    assert [error["loc"][-1] for error in refused.value.errors()] == [key]


def test_a_file_with_another_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "camera.txt").write_text(TWO_SIZES)
    flow = Flow(name="camera", schedule=str(tmp_path / "camera.txt")).measured()
    assert flow.measured() == flow
    (tmp_path / "camera.txt").write_text(TWO_SIZES + "# changed\n")
    with pytest.raises(InputError, match="has the SHA-256"):
        flow.measured()
