"""Every setting of a trial is declared once, and all else that k8sdds knows of it follows."""

import json

import pytest

from k8sdds import workloads
from k8sdds.analysis import conditions, contrast, limit
from k8sdds.analysis.conditions import CONDITION
from k8sdds.campaign import applications
from k8sdds.claims.model import DEFAULTS, SELECTABLE
from k8sdds.model.application import Application, Choices
from k8sdds.model.axis import DDS, LOAD, WORKLOAD, axes, compact
from k8sdds.model.experiment import LISTS, Experiment, Sweep
from k8sdds.model.link import Link
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.options import OPTION_COLUMNS, OPTIONS
from k8sdds.model.trial import AXES, EXEMPT, Cell
from k8sdds.recommend import evidence
from k8sdds.results.record import COLUMNS
from k8sdds.results.run_folder import SCHEMA
from k8sdds.results.tidy import _row

SETTINGS = sorted(set(AXES) - {"network"})


def test_every_field_of_a_cell_is_a_setting_or_exempt_with_a_reason():
    assert set(Cell.model_fields) == set(AXES) | set(EXEMPT)
    assert not set(AXES) & set(EXEMPT)
    assert all(EXEMPT.values())


def test_every_option_of_a_test_and_every_part_of_a_link_is_a_setting():
    assert set(OPTIONS) <= set(workloads.WORKLOADS)
    for workload in workloads.WORKLOADS.values():
        assert set(workload.options.model_fields) == set(axes(workload.options)), workload.name
        assert {axis.column for axis in axes(workload.options).values()} <= set(OPTION_COLUMNS), workload.name
    assert set(Link.model_fields) == set(axes(Link)) == set(LinkChoice.model_fields) - {"like"}


def test_every_setting_separates_cells_and_has_a_column_and_keys():
    assert set(SETTINGS) | set(OPTION_COLUMNS) | {"testbed"} == set(CONDITION)
    assert set(SETTINGS) | set(OPTION_COLUMNS) <= set(COLUMNS)
    assert set(SETTINGS) - {"nodes"} <= set(SELECTABLE)
    assert {axis.key for axis in AXES.values() if axis.key} | {"capture"} == set(Sweep.model_fields)
    assert set(LISTS) <= set(Sweep.model_fields)
    assert {axis.key for axis in AXES.values() if axis.choice is not None} == set(Choices.model_fields)
    of_experiment = {axis.key for axis in AXES.values() if axis.of_experiment}
    assert of_experiment == set(Experiment.model_fields) & set(Sweep.model_fields) - {"name", "capture"}
    # Claims are about the default of a setting unless it may have any value.
    assert (DEFAULTS["background"], DEFAULTS["policies"]) == ("none", 0)
    assert not {"middleware", "layout", "link"} & set(DEFAULTS)
    # No setting is newer than the record.
    declared = (*AXES.values(), *axes(Link).values())
    assert all(axis.since is None or 2 <= axis.since <= SCHEMA for axis in declared)
    # Without `since`, the first records have it.
    first = {name for name in SETTINGS if AXES[name].since is None and AXES[name].default is not None}
    assert first <= set(record())
    assert all(AXES[name].description for name in SETTINGS if AXES[name].key)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_usual_value_is_the_reference_of_contrasts(name):
    """A record has the default of some settings as JSON, and that of others as what it stands for."""
    row = dict.fromkeys(COLUMNS) | _row(record())
    other = row | {name: compact(value) if isinstance(value := OTHER_VALUE.get(name), dict) else value}
    if name in OTHER_VALUE:
        assert row[name] != other[name] and not AXES[name].is_usual(other)
        assert contrast.reference_of(name, [other, row]) == row[name]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_default_is_described_recorded_and_read_back(name):
    axis = AXES[name]
    if axis.field.is_required():
        return
    assert axis.phrase(axis.default) == axis.phrase(axis.recorded(axis.default))
    assert axis.recorded_default is None or isinstance(axis.recorded_default, str | int | float | bool)
    if axis.since:
        # A record of an earlier version does not have the setting, which was measured with its default.
        assert _row({"network": "host"})[name] == axis.recorded_default


def test_plain_udp_is_compared_in_everything_but_the_middleware():
    assert set(CONDITION) - set(limit.SAME) == {name for name, axis in AXES.items() if axis.scope == DDS}
    assert AXES["background"].scope == LOAD
    assert AXES["transport"].scope == WORKLOAD


def test_the_tidy_column_of_a_part_is_described_like_the_setting():
    text = json.dumps(Link(rate_mbit=100, mtu=9000).model_dump(mode="json"))
    assert conditions.describe({"link": text}) == Link(rate_mbit=100, mtu=9000).describe()
    assert conditions.describe({"link": '{"unknown": 1}'}) == 'link {"unknown": 1}'


# -- recommend --from ---------------------------------------------------------------------------------

APPLICATION = Application.model_validate(
    {
        "name": "one-flow",
        "flows": [{"name": "state", "payload_bytes": 1024, "rate": 100, "delay": "p99 <= 10 ms"}],
        "choices": {"networks": ["host", "flannel-vxlan"]},
    }
)
OTHER_VALUE = {
    "testbed": "cluster", "qos": "other", "middleware_config": "a.xml", "middleware_config_sha256": "ab" * 32,
    "rate_profile": "burst:4", "fragment_bytes": "mtu", "instances": 10, "topics": 2, "writers": 2,
    "discovery": "multicast", "discovery_servers": 2, "publish_mode": "asynchronous", "flow_bytes": 2048, "flow_period_ms": 50,
    "message_type": "sensor_msgs/msg/Image",
    "realtime_priority": 10, "lock_memory": True, "dscp": 46, "layout": "same", "ip_families": "ipv6",
    "policies": 3, "link": {"rate_mbit": 100, "loss_percent": 0, "delay_us": 0},
    "cpu_period_ms": 20.0, "cpu_burst_ms": 10.0, "cpu_request": 0.5,
    "placement": "packed", "dev_shm": "own", "users": "other", "nodes": 4, "graph": "ab" * 32, "background": {"flows": 3, "kind": "udp", "rate_mbit": 2, "cpus": []},
}  # fmt: skip
"""For each setting that neither the application nor its flow sets, a value other than the usual one."""


def folder(path, count, cpu_model="Cortex-A72", schema=2, **settings):
    """Write a run folder with valid trials of the flow."""
    path.mkdir()
    facts = {"cpu_model": cpu_model, "cpu_count": 4} if cpu_model else {}
    campaign = {"schema": schema, "campaign": path.name, "testbed": {"name": "lab", "facts": facts}}
    (path / "campaign.json").write_text(json.dumps(campaign))
    lines = [
        json.dumps(
            record() | settings | {"trial_id": f"{path.name}-{n}", "cell_id": path.name, "repetition": n}
        )
        for n in range(count)
    ]
    (path / "trials.jsonl").write_text("\n".join(lines) + "\n")
    return str(path)


def record():
    """Return the record of a valid trial of the flow."""
    return {
        "schema": 2, "testbed": "lab", "network": "host", "network_label": "host", "test": "paced",
        "payload_bytes": 1024, "rate": 100.0, "publishers": 1, "subscribers": 1, "nodes": 2, "placement": "spread",
        "transport": "unicast", "reliability": "reliable", "middleware": "cyclonedds", "qos": "strict-reliable",
        "batch_bytes": 0, "discovery": "auto", "receive_mode": "listener", "security": "none", "layout": "split",
        "link": {"rate_mbit": None, "loss_percent": 0, "delay_us": 0}, "attempt": 1, "valid": True,
        "delay_p99_us": 800.0, "achieved_rate_percent": 100.0,
    }  # fmt: skip


def used(found):
    return [len(trials) for option in found.options for trials in option.trials.values()]


def test_every_setting_that_nothing_chooses_has_an_example_here():
    of_run = {evidence.MACHINE, evidence.SWITCH, evidence.CPU_TIME}
    assert {*evidence.ENVIRONMENT, "background"} - {*OPTION_COLUMNS, *of_run} == set(OTHER_VALUE)


def test_trials_that_differ_in_a_setting_are_never_repetitions_of_one_configuration(tmp_path):
    others = [folder(tmp_path / name, 2, **{name: value}) for name, value in OTHER_VALUE.items()]
    found = evidence.of_folders(APPLICATION, [folder(tmp_path / "usual", 3), *others])
    assert used(found) == [3] and len(found.notes) == len(others)
    for name in OTHER_VALUE:
        assert any(note.startswith("2 trials ") and f"other {name}" in note for note in found.notes), name


@pytest.mark.parametrize(
    ("options", "value"),
    [("network_options", {"mtu": 1300}), ("security_options", {"level": "none", "aes_bits": 128})],
)
def test_one_label_stands_for_one_definition(tmp_path, options, value):
    folders = [folder(tmp_path / "a", 3), folder(tmp_path / "b", 1, **{options: value})]
    found = evidence.of_folders(APPLICATION, folders)
    label = "host" if options == "network_options" else "none"
    assert used(found) == [3]
    assert found.notes == (f"1 trial of {label} left out: most others have {options} {{}}",)


def test_trials_of_one_environment_are_pooled(tmp_path):
    found = evidence.of_folders(APPLICATION, [folder(tmp_path / "a", 2), folder(tmp_path / "b", 3)])
    assert (used(found), found.notes) == ([5], ())


@pytest.mark.parametrize(
    ("first", "others", "difference"),
    [
        ({}, {"cpu_model": "Cortex-A76"},
         "machine (Cortex-A72, 4 cores, kernel unknown, not Cortex-A76, 4 cores, kernel unknown)"),
        # Unknown machines are different machines.
        ({"cpu_model": None}, {"cpu_model": None}, "machine"),
        ({}, {"schema": 3}, "switch (of an earlier version, not usual)"),
        ({"schema": 3}, {"schema": 4}, "CPU time (of an earlier version, not usual)"),
    ],
)  # fmt: skip
def test_trials_of_other_environments_are_not_pooled(tmp_path, first, others, difference):
    folders = [folder(tmp_path / "a", 1, **first), folder(tmp_path / "b", 3, **others)]
    found = evidence.of_folders(APPLICATION, folders)
    assert used(found) == [3]
    (note,) = found.notes
    assert note.startswith(f"1 trial left out, with other {difference}")


def test_choices_have_values_that_applications_may_have():
    assert set(applications.allowed(APPLICATION)) == set(applications.CHOSEN) - {"reliability"}
