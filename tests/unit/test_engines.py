"""Networks with several engines: selection, labels, MTUs and plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.campaign.expansion import expand
from k8sdds.cli import machine
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS, cluster_modes, find, label_without_engine, with_engines
from k8sdds.system.errors import InputError
from k8sdds.system.kernel_features import Capabilities, Feature, remedy
from k8sdds.testbeds.lab.plan import make_plan, script
from k8sdds.testbeds.lab.preflight import _contradiction
from tests.unit import builders

ENGINES = [(name, engine) for name, network in NETWORKS.items() for engine in network.engines]


def experiment(*networks: object, baseline: str = "host") -> Experiment:
    return builders.experiment({"networks": ["host", *networks]}, baseline=baseline)


def labels(resolved_one: Experiment) -> list[str]:
    return [cell.network_label for cell in expand(resolved_one).cells]


@pytest.mark.parametrize(
    ("networks", "available", "expected"),
    [
        (["flannel-ipsec"], None, ["flannel-ipsec (kernel ESP)"]),
        (
            ["flannel-ipsec", "flannel-wireguard"], {"strongswan", "tun"},
            ["flannel-ipsec (userspace ESP)", "flannel-wireguard (userspace WireGuard)"],
        ),
        # A label does not hide the engine.
        ([{"name": "flannel-ipsec", "label": "fast"}], set(), ["fast (userspace ESP)"]),
        (
            [{"name": "weavenet-encrypt", "engine": engine} for engine in ("kernel", "userspace")], None,
            ["weavenet-encrypt (kernel ESP)", "weavenet-encrypt (userspace ESP)"],
        ),
    ],
)  # fmt: skip
def test_the_engine_of_the_plugin_is_selected_if_it_is_available(
    networks: list[object], available: set[str] | None, expected: list[str]
) -> None:
    resolved = with_engines(
        experiment(*networks), lambda feature: available is None or feature.name in available
    )
    assert labels(resolved) == ["host", *expected]
    assert len({cell.cell_id for cell in expand(resolved).cells}) == 1 + len(expected)
    of_baseline = with_engines(experiment("flannel-ipsec", baseline="flannel-ipsec"), lambda feature: True)
    assert of_baseline.baseline == "flannel-ipsec (kernel ESP)"


def test_an_engine_of_clusters_is_selected_only_on_request_and_not_in_the_lab() -> None:
    sleeve = {"name": "weavenet", "engine": "sleeve"}
    resolved = with_engines(experiment("weavenet", sleeve), lambda name: True)
    assert labels(resolved) == ["host", "weavenet", "weavenet (userspace sleeve)"]
    assert label_without_engine("weavenet (userspace sleeve)") == "weavenet"
    own, requested = (find("weavenet").engine_title(options, on_cluster=True) for options in ({}, sleeve))
    assert (own, requested) == ("Open vSwitch", "userspace sleeve")
    cell = Cell(network="weavenet", network_options={"engine": "sleeve"}, test="latency", payload_bytes=64)
    problem = _contradiction(cell)
    assert problem is not None and "the lab does not have this engine" in problem.what
    assert cluster_modes()[find("weavenet").mode_name(sleeve)] == (find("weavenet"), "sleeve")
    assert find("weavenet").options_error({"engine": "sleeve"}) is None
    assert "unknown engine 'sleeve'" in str(find("weavenet-encrypt").options_error({"engine": "sleeve"}))


@given(st.sets(st.sampled_from(["esp", "tun", "strongswan", "wireguard", "wg", "wireguard-go"])))
def test_selecting_engines_is_idempotent(features: set[str]) -> None:
    once = with_engines(
        experiment("flannel-ipsec", "weavenet-encrypt"), lambda feature: feature.name in features
    )
    assert with_engines(once, lambda name: True) == once
    assert {label_without_engine(label) for label in labels(once)} == {
        "host",
        "flannel-ipsec",
        "weavenet-encrypt",
    }


def test_an_engine_is_rejected_if_the_network_has_no_choice() -> None:
    assert "no choice of engines" in str(find("host").options_error({"engine": "kernel"}))
    with pytest.raises(InputError, match="flannel-ipsecc"):
        find("flannel-ipsecc")


@pytest.mark.parametrize(
    ("network", "engine", "mtu", "mode"),
    [
        ("flannel-ipsec", "kernel", 1423, "tunnel"),
        ("flannel-ipsec", "userspace", 1400, "tunnel"),
        ("weavenet-encrypt", "kernel", 1414, "transport"),
        ("weavenet-encrypt", "userspace", 1330, "tunnel"),
        ("flannel-wireguard", "kernel", 1420, "tunnel"),
        ("flannel-wireguard", "userspace", 1420, "tunnel"),
    ],
)
def test_mtu_and_mode_of_each_engine(network: str, engine: str, mtu: int, mode: str) -> None:
    options = {"engine": engine}
    assert find(network).mtu(options) == mtu
    selected = find(network).engine_for(options)
    assert selected is not None
    assert selected.mode == mode
    assert find(network).options_error({**options, "mtu": selected.max_mtu}) is None
    assert f"at most {selected.max_mtu}" in str(
        find(network).options_error({**options, "mtu": selected.max_mtu + 1})
    )


@pytest.mark.parametrize(("network", "engine"), ENGINES)
def test_the_script_has_files_daemons_and_tunnels_but_no_key(network: str, engine) -> None:  # type: ignore[no-untyped-def]
    built = make_plan(
        Cell(network=network, network_options={"engine": engine.name}, test="latency", payload_bytes=64)
    )
    text = script(built)
    for file in built.datapath.files:
        assert file.text.strip() in text
    for batch in built.datapath.tunnels:
        assert all(line in text for line in batch.lines)
    assert text.count("sleep 0.1") == len(built.datapath.daemons)
    assert ("$psk" in text) == (network != "flannel-wireguard")


def test_doctor_advises_no_other_network_where_an_engine_is_usable() -> None:
    of = lambda has: machine._engines(find("flannel-ipsec"), Capabilities(frozenset(has), {}))  # noqa: E731
    usable = of({"strongswan", "tun"})
    assert usable["says"] == "can run here with userspace ESP; not with kernel ESP, which requires esp"
    assert usable["remedy"] == "see the notes above"
    assert of(set())["says"].startswith(
        "cannot run here; not with kernel ESP, which requires strongswan, esp;"
    )


def test_the_remedy_for_a_module_that_a_kernel_does_not_have_names_engines() -> None:
    """A network that requires it can have another engine, and `doctor` refers to this remedy."""
    missing = Feature("esp", ("k8sdds_no_such_module",), "IPsec in the kernel", "false")
    expected = (
        "this kernel has no module k8sdds_no_such_module; use a network, engine or link that does not need it"
    )
    assert remedy(missing) == expected
