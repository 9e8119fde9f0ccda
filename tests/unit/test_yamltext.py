"""Test that errors in YAML files name file, line, key and fix."""

from contextlib import suppress
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from k8sdds.campaign import experiments
from k8sdds.campaign.experiments import Changes
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
        ("payload_bytes: 64", "payload_byte: 64", "mine.yaml:4: payload_byte: unknown key (did you mean 'payload_bytes'?)"),
        ("payload_bytes: 64", "payload_bytes: 0", "mine.yaml:4: payload_bytes: expected at least 1"),
        ("payload_bytes: 64", "payload_bytes: true", "expected a number, not true or false"),
        ("payload_bytes: 64", "payload_bytes: [64, 64]", "mine.yaml:4: payload_bytes[1]: 64 is listed twice"),
        ("networks: [host]", "networks: [host, host]", "mine.yaml:3: networks[1]: host is listed twice"),
        ("payload_bytes: 64", "security: [none, none]", "mine.yaml:4: security[1]: none is listed twice"),
        ("payload_bytes: 64", "payload_bytes: [64, 0]", "mine.yaml:4: payload_bytes[1]: expected"),
        ("payload_bytes: 64", "payload_bytes:\n      - 64\n      - 0", "mine.yaml:6: payload_bytes[1]: expected"),
        ("payload_bytes: 64", "payload_bytes: 64\n  - networks: host\n    rate: -1", "mine.yaml:6: sweeps[1].rate: expected"),
        ("payload_bytes: 64", "test:\n      - name: latency\n        size: 3", "mine.yaml:6: test.size: test latency has no option 'size'"),
        ("payload_bytes: 64", "message_bytes: 100", "mine.yaml:4: message_bytes: expected auto, default, mtu, max or a number from 512"),
        ("payload_bytes: 64", "message_bytes: [mtu, big]", "mine.yaml:4: message_bytes[1]: expected auto, default, mtu, max or a number"),
        ("payload_bytes: 64", "fragment_bytes: auto", "mine.yaml:4: fragment_bytes: expected default, mtu, max or a number from 512"),
        ("networks: [host]", "networks: [host, hots]", "mine.yaml:3: networks[1]: unknown network 'hots' (did you mean 'host'?)"),
        ("payload_bytes: 64", "security: {level: none, rtps: SIGN}", "mine.yaml:4: security: level none has no parts"),
        ("payload_bytes: 64", "placement: {pub0: []}", "mine.yaml:4: placement.pub0: expected"),
        ("name: mine", "1: mine", "mine.yaml:1: 1: unknown key"),
        ("payload_bytes: 64", "test: bandwidth", "mine.yaml:4: test: there is no test 'bandwidth' (known: throughput, latency, paced, "),
        ("payload_bytes: 64", "test: latenc", "test: there is no test 'latenc' (did you mean 'latency'?)"),
        ("payload_bytes: 64", "test: {name: latency, size: 3}", "test.size: test latency has no option 'size'"),
        ("networks: [host]", "networks: []", "mine.yaml:3: networks"),
        ("networks: [host]", "networks: [{name: host, mtuu: 3}]", "mine.yaml:3: networks.mtuu: unknown key (did you mean 'mtu'?)"),
        ("payload_bytes: 64", "payload-bytes: 64", "mine.yaml:4: payload-bytes: unknown key (did you mean 'payload_bytes'?)"),
        ("name: mine", "name: mine\nduration-s: 3", "mine.yaml:2: duration-s: unknown key (did you mean 'duration_s'?)"),
        ("sweeps:", "link: {rate-mbit: 3}\nsweeps:", "mine.yaml:2: link.rate-mbit: unknown key (did you mean 'rate_mbit'?)"),
        ("name: mine", "name: My Experiment", "mine.yaml:1: name"),
        ("name: mine", "title: mine", "name: this key is missing"),
        ("sweeps:", "link: {rate: 3}\nsweeps:", "mine.yaml:2: link.rate: must be a mapping, such as {mbit: 10}"),
    ],
)  # fmt: skip
def test_an_error_names_its_line(old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert message in refused(GOOD.replace(old, new))


def test_all_errors_are_reported_at_once() -> None:
    message = refused(GOOD.replace("networks", "network").replace("64", "x"))
    assert "mine.yaml:3: network: unknown key (did you mean 'networks'?)" in message
    assert "mine.yaml:4: payload_bytes" in message


def test_a_file_of_another_kind_gives_one_line() -> None:
    kubeconfig = refused("apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: []\n")
    assert kubeconfig == "mine.yaml is a kubeconfig"
    assert refused("a: 1\nb: 2\nc: 3\nd: 4\n").startswith("mine.yaml: unknown keys: a, b, c, d;")


BREAKS: dict[str, object] = {
    "payload_bytes": 0, "rate": "fast", "subscribers": 0, "transport": "broadcast", "cpu_quota": -1, "link": 3,
    "discovery": ["peers", "peers"], "test": {"name": "latency", "size": 3}, "networks": [{"name": "host", "mtu": 1}],
    "duration_s": True, "no_such_key": 1,
}  # fmt: skip
"""Keys with a value that is wrong in every experiment."""


@st.composite
def broken_documents(draw: st.DrawFn) -> tuple[str, str]:
    """Return a key with a wrong value, and an experiment with it among right ones, in any YAML style."""
    key = draw(st.sampled_from(sorted(BREAKS)))
    sweep: dict[str, object] = {
        "networks": ["host"],
        "payload_bytes": [64, 1024],
        "rate": 5,
        "link": {"delay_us": 3},
    }
    sweeps = [dict(draw(st.permutations(list(sweep.items())))) for _ in range(draw(st.integers(1, 4)))]
    document: dict[str, object] = {"name": "mine", "title": "a title", "sweeps": sweeps, "repetitions": 2}
    (document if key == "duration_s" else draw(st.sampled_from(sweeps)))[key] = BREAKS[key]
    document = dict(draw(st.permutations(list(document.items()))))
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = draw(st.sampled_from([None, False]))
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 1000
    out = StringIO()
    yaml.dump(document, out)
    return key, draw(st.sampled_from(["", "# a comment\n\n"])) + out.getvalue()


@given(broken_documents())
def test_the_line_of_an_error_contains_its_key(broken: tuple[str, str]) -> None:
    key, text = broken
    lines = text.splitlines()
    for error in refused(text).splitlines():
        where, named, _ = error.split(": ", 2)
        line = lines[int(where.removeprefix("mine.yaml:")) - 1]
        assert key in named
        last = named.rpartition(".")[2].partition("[")[0]
        # An item of a list in block style has a line of its own.
        assert last in line or line.lstrip().startswith("- ")
        above = next(i for i in range(lines.index(line), -1, -1) if key in lines[i])
        assert lines[above].strip(" -").startswith(key)


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\t", "name: x\nname: y\n", "- 1", "42", "", "[" * 1200])
def test_text_that_is_not_a_mapping_is_rejected_with_a_line(text: str) -> None:
    assert refused(text).startswith("mine.yaml")


def test_escapes_of_characters_outside_of_the_basic_plane_are_combined() -> None:
    title = GOOD + 'title: "\\ud83d\\ude00 \\U0001F600"\n'
    assert yaml_text.parse(title, Experiment, "mine.yaml", experiments.KNOWN).title == "\U0001f600 \U0001f600"
    assert "control character U+D83D" in refused(GOOD + 'title: "\\ud83d alone"\n')


@given(st.text(max_size=200))
def test_any_text_gives_data_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        yaml_text.parse(text, Experiment, "any.yaml")


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        (["payload_bytes=0"], {}, "--set payload_bytes=0: expected at least 1"),
        (["payload_bytes=[64,0]"], {}, "--set payload_bytes=[64,0]: expected at least"),
        (["link.rate=3"], {}, "--set link.rate=3: must be a mapping, such as {mbit: 10}"),
        (["link.rate_mbit=x", "link.delay_us=3"], {}, "--set link.rate_mbit=x: expected a number"),
        (["networks=[hots]"], {}, "--set networks=[hots]: unknown network 'hots' (did you mean 'host'?)"),
        (["test={name: latency, size: 3}"], {}, "--set test={name: latency, size: 3}: test latency has no option"),
        (["payload_bytes=1 KB"], {}, "--set payload_bytes=1 KB: '1 KB': unknown unit 'KB' (units: B, KiB, MiB)"),
        (["payload_bytes=1.2 B"], {}, "--set payload_bytes=1.2 B: expected a whole number"),
        (["test={name: paced, deadline_ms: 3 Hz}"], {}, "--set test={name: paced, deadline_ms: 3 Hz}: '3 Hz': unknown unit"),
        (["payload"], {}, "--set 'payload' is not KEY=VALUE"),
        (["=3"], {}, "--set '=3' is not KEY=VALUE"),
        (["payload_bytes="], {}, "--set payload_bytes: the value is missing"),
        (["payload_bytes=["], {}, "--set payload_bytes:1: not valid YAML"),
        (["payload_bytse=3"], {}, "--set payload_bytse: there is no such key (did you mean 'payload_bytes'?)"),
        (["name=x"], {}, "--set name: there is no such key"),
        (["repetitions.x=1"], {}, "--set repetitions.x: repetitions has no parts"),
        (["sweeps.0.payload_bytes=64"], {}, "--set sweeps.0.payload_bytes: there is no such key"),
        (["rate=.inf"], {}, "--set rate=.inf: expected a finite number"),
        (["duration_s=true"], {}, "--set duration_s=true: expected a number, not true or false"),
        (["networks={name: host, label: 'a[/b]'}"], {}, "--set networks={name: host, label: 'a[/b]'}: expected text that matches"),
        (["ip_families=[ipv4, ipv4]"], {}, "--set ip_families=[ipv4, ipv4]: a family is listed twice"),
        (["networks=[]"], {}, "--set networks=[]: expected a list with 1 or more values"),
        (["link=[5]"], {}, "--set link=[5]: expected keys with values (known: name, rate_mbit, loss_percent, "),
        (["rate=-1"], {}, "--set rate=-1: expected at least 0"),
        (["ip_families=[]"], {}, "--set ip_families=[]: expected a list with 1 or more values"),
        ([], {"repetitions": 1001}, "--repeat 1001: expected at most 1000"),
        ([], {"duration_s": 1e6}, "--duration 1e+06: expected at most 86400"),
    ],
)  # fmt: skip
def test_an_error_of_a_change_names_the_option(settings: list[str], options: dict, message: str) -> None:
    experiment = yaml_text.parse(GOOD, Experiment, "mine.yaml", experiments.KNOWN)
    with pytest.raises(InputError) as caught:
        experiments.changed(experiment, Changes(settings=settings, **options))
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message
