"""Test that errors in YAML files name file, line, key and fix."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.campaign import experiments
from k8sdds.model.experiment import Experiment
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError

GOOD = """\
name: mine
sweeps:
  - networks: [host]
    payload_bytes: 64
"""


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        yaml_text.parse(text, Experiment, "mine.yaml", experiments.KNOWN)
    assert caught.value.exit_code == 2
    return caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("payload_bytes: 64", "payload_byte: 64", "mine.yaml:4: sweeps.0.payload_byte: unknown key (did you mean 'payload_bytes'?)"),
        ("payload_bytes: 64", "payload_bytes: 27", "mine.yaml:4: sweeps.0.payload_bytes.0: Input should be greater than or equal to 28"),
        ("payload_bytes: 64", "payload_bytes: true", "expected a number, not true or false"),
        ("payload_bytes: 64", "payload_bytes: [64, 64]", "64 is listed twice"),
        ("payload_bytes: 64", "test: speed", "mine.yaml:4: sweeps.0.test.0: there is no test 'speed' (known: throughput, latency)"),
        ("payload_bytes: 64", "test: latenc", "sweeps.0.test.0: there is no test 'latenc' (did you mean 'latency'?)"),
        ("payload_bytes: 64", "test: {name: latency, size: 3}", "sweeps.0.test.0: test latency has no option 'size'"),
        ("networks: [host]", "networks: []", "mine.yaml:3: sweeps.0.networks"),
        ("networks: [host]", "networks: [{name: host, mtuu: 3}]", "mine.yaml:3: sweeps.0.networks.0.mtuu: unknown key (did you mean 'mtu'?)"),
        ("payload_bytes: 64", "payload-bytes: 64", "mine.yaml:4: sweeps.0.payload-bytes: unknown key (did you mean 'payload_bytes'?)"),
        ("name: mine", "name: mine\nduration-s: 3", "mine.yaml:2: duration-s: unknown key (did you mean 'duration_s'?)"),
        ("sweeps:", "link: {rate-mbit: 3}\nsweeps:", "mine.yaml:2: link.rate-mbit: unknown key (did you mean 'rate_mbit'?)"),
        ("name: mine", "name: My Experiment", "mine.yaml:1: name"),
        ("name: mine", "title: mine", "name: this key is missing"),
        ("sweeps:", "link: {rate: 3}\nsweeps:", "mine.yaml:2: link.rate: unknown key (did you mean 'rate_mbit'?)"),
    ],
)  # fmt: skip
def test_an_error_names_its_line(old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert message in refused(GOOD.replace(old, new))


def test_all_errors_are_reported_at_once() -> None:
    message = refused(GOOD.replace("networks", "network").replace("64", "x"))
    assert "mine.yaml:3: sweeps.0.network: unknown key (did you mean 'networks'?)" in message
    assert "mine.yaml:4: sweeps.0.payload_bytes" in message


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t", "name: x\nname: y\n", "- 1", "42", ""])
def test_text_that_is_not_a_mapping_is_rejected_with_a_line(text: str) -> None:
    assert refused(text).startswith("mine.yaml")


@given(st.text(max_size=200))
def test_any_text_gives_data_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        yaml_text.parse(text, Experiment, "any.yaml")


def test_the_resolved_experiment_reads_back_as_the_same() -> None:
    experiment = yaml_text.parse(GOOD, Experiment, "mine.yaml", experiments.KNOWN)
    text = yaml_text.dump(experiment.model_dump(mode="json", exclude_none=True))
    assert yaml_text.parse(text, Experiment, "again.yaml") == experiment
