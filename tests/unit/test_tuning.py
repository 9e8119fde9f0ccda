"""Plans of tuning sets from the facts of machines."""

from __future__ import annotations

import subprocess
from typing import get_args

import pytest

from k8sdds.deploy import experiment_tuning, tuning
from k8sdds.model.profile import TuningName
from k8sdds.system.errors import InputError

# Output of `facts_script` on a PC with an Intel card.
CARD = [
    "sysctl net.core.rmem_max free 212992",
    "sysctl net.core.wmem_max free 212992",
    "sysctl net.ipv4.tcp_rmem free 4096 131072 6291456",
    "sysctl net.ipv4.tcp_wmem free 4096 16384 4194304",
    "device eno1",
    "offload eno1 tso on ",
    "offload eno1 gro off ",
    "ring eno1 rx 256 4096",
    "ring eno1 tx 256 2048",
]
BOTH = ("kernel-optimizations", "nic-optimizations")


def after(lines: list[str], script: str) -> list[str]:
    """Return the facts after a script has run, as its files would show them."""
    former = script.split("<<'END_OF_FORMER'\n")[-1].split("\nEND_OF_FORMER")[0].splitlines()
    apply = script.split("<<'END_OF_APPLY'\n")[1].split("END_OF_APPLY")[0]
    digest = subprocess.run(["sha256sum"], input=apply, capture_output=True, text=True).stdout.split()[0]
    return [*lines, *(f"former {line}" for line in former), f"apply {digest}"]


def test_each_set_names_its_source() -> None:
    assert tuning.SETS.names() == sorted(get_args(TuningName))
    for name in tuning.SETS.names():
        assert tuning.load(name).source


def test_settings_are_limited_to_what_the_card_supports() -> None:
    tuned = tuning.plan(BOTH, CARD)
    assert set(tuned.changes) == {
        "net.core.rmem_max: 212992 → 16777216",
        "net.core.wmem_max: 212992 → 16777216",
        "net.ipv4.tcp_rmem: 4096 131072 6291456 → 4096 131072 16777216",
        "net.ipv4.tcp_wmem: 4096 16384 4194304 → 4096 16384 16777216",
        "eno1 offload gro: off → on",
        "eno1 ring rx: 256 → 4096",
        "eno1 ring tx: 256 → 2048",
    }
    assert tuned.notes == ()
    assert "ethtool -G eno1 tx 2048\n" in tuned.script
    assert "sysctl -qw net.ipv4.tcp_wmem='4096 16384 16777216'\n" in tuned.script
    assert "ring eno1 rx 256\n" in tuned.script
    assert subprocess.run(["sh", "-n"], input=tuned.script, text=True).returncode == 0


def test_second_plan_is_empty() -> None:
    tuned = tuning.plan(BOTH, CARD)
    done = [
        "sysctl net.core.rmem_max free 16777216",
        "sysctl net.core.wmem_max free 16777216",
        "sysctl net.ipv4.tcp_rmem free 4096 131072 16777216",
        "sysctl net.ipv4.tcp_wmem free 4096 16384 16777216",
        "device eno1",
        "offload eno1 tso on ",
        "offload eno1 gro on ",
        "ring eno1 rx 4096 4096",
        "ring eno1 tx 2048 2048",
    ]
    assert tuning.plan(BOTH, after(done, tuned.script)) == tuning.TuningPlan()
    # Set, but not by deploy: applied at each boot, with these values as the original ones.
    kept = tuning.plan(BOTH, done)
    assert kept.changes == ("apply the settings again at each boot",)
    assert "ring eno1 tx 2048\n" in kept.script
    # An interrupted deploy continues, and keeps the original values.
    halfway = tuning.plan(BOTH, after(CARD, tuned.script))
    assert set(halfway.changes) == set(tuned.changes)
    assert "ring eno1 rx 256\n" in halfway.script


@pytest.mark.parametrize(
    ("first", "second", "payload"), [("10.0.0.1", "10.0.0.2", 8972), ("fd00::1", "fd00::2", 8952)]
)
def test_machines_ping_each_other_with_packets_of_the_mtu(first: str, second: str, payload: int) -> None:
    facts = {"a": ("device eno1", f"address {first}"), "b": (f"address {second}",), "c": ("device -",)}
    pings = experiment_tuning.pings_of(9000, facts)
    assert {machine: other for machine, (other, _) in pings.items()} == {"a": "b", "b": "a"}
    assert f"-s {payload} {second} " in pings["a"][1] and f"-s {payload} {first} " in pings["b"][1]
    assert experiment_tuning.pings_of(9000, {"a": facts["a"]}) == {}


LINK = tuning.Interface(mtu=9000, offloads={"gro": True, "uso": False})


def test_an_experiment_sets_mtu_and_offloads_of_the_interface() -> None:
    lines = [*CARD, "mtu eno1 - 1500 9194", "offload eno1 tx-udp-segmentation on "]
    tuned = tuning.plan((), lines, tuning.EXPERIMENT_FOLDER, LINK)
    assert set(tuned.changes) == {
        "eno1 mtu: 1500 → 9000",
        "eno1 offload gro: off → on",
        "eno1 offload tx-udp-segmentation: on → off",
    }
    assert "ip link set dev eno1 mtu 9000\n" in tuned.script and "\nmtu eno1 - 1500\n" in tuned.script
    refused = tuning.plan((), [*CARD, "mtu eno1 - 1500 1518"], tuning.EXPERIMENT_FOLDER, LINK)
    assert refused.notes == (
        "eno1 has an MTU of at most 1518 bytes",
        "eno1 does not support tx-udp-segmentation",
    )


def test_unsupported_settings_are_noted() -> None:
    lines = [
        "sysctl net.core.rmem_max fixed 212992",
        "sysctl net.core.wmem_max shadowed 212992",
        "sysctl net.ipv4.tcp_rmem none ",
        "sysctl net.ipv4.tcp_wmem fixed 4096 16384 16777216",
        "device eth0",
        "offload eth0 tso off [fixed]",
        "offload eth0 gro on ",
    ]
    tuned = tuning.plan(BOTH, lines)
    assert len(tuned.notes) == 6
    assert tuned.notes[0].startswith("net.core.rmem_max stays 212992, not 16777216: ")
    assert tuned.notes[2].startswith("net.ipv4.tcp_rmem does not exist")
    assert tuned.notes[3:] == (
        "eth0 does not support tcp-segmentation-offload",
        "eth0 has no rx ring whose size can be set",
        "eth0 has no tx ring whose size can be set",
    )
    assert tuned.changes == ("apply the settings again at each boot",)
    refused = [line.replace("[fixed]", "[requested on]") for line in lines]
    assert tuning.plan(BOTH, refused).notes == tuned.notes
    assert tuning.plan(("nic-optimizations",), ["device ", "ethtool none"]).notes == (
        "nic-optimizations: ethtool is not installed: rings and offloads are not changed",
    )


def test_later_set_takes_precedence() -> None:
    lines = [f"sysctl {key} free 1" for key in tuning.load("connext").sysctls]
    first, last = (tuning.plan(names, lines) for names in
                   (("connext", "kernel-optimizations"), ("kernel-optimizations", "connext")))  # fmt: skip
    assert "net.ipv4.tcp_wmem: 1 → 4096 16384 16777216" in first.changes
    assert "net.ipv4.tcp_wmem: 1 → 4096 131072 16777216" in last.changes
    assert first.notes == (
        "net.ipv4.tcp_wmem: kernel-optimizations sets 4096 16384 16777216 instead of 4096 131072 16777216, and takes precedence",
    )


def test_dropped_sets_are_undone() -> None:
    assert tuning.plan((), CARD) == tuning.TuningPlan()
    tuned = after(CARD, tuning.plan(BOTH, CARD).script)
    undo = tuning.plan((), tuned)
    assert undo.script == tuning.undo_script()
    assert "net.core.rmem_max: restore 212992" in undo.changes
    # Settings of a removed card are not restored.
    assert not any("eno1" in change for change in tuning.plan((), [
        line for line in tuned if not line.startswith(("offload", "ring"))
    ]).changes)  # fmt: skip


def test_unknown_set_is_refused() -> None:
    with pytest.raises(InputError, match="connext"):
        tuning.plan(("conext",), CARD)


def test_what_an_experiment_sets_is_kept_apart_and_not_set_at_boot() -> None:
    tuned = tuning.plan(["kernel-optimizations"], CARD, tuning.EXPERIMENT_FOLDER)
    undo = tuning.undo_script(tuning.EXPERIMENT_FOLDER)
    for script in (tuned.script, undo):
        assert tuning.EXPERIMENT_FOLDER in script and f"{tuning.FOLDER}/" not in script
        assert tuning.UNIT not in script
        assert subprocess.run(["sh", "-n"], input=script, text=True).returncode == 0
    assert tuning.UNIT in tuning.plan(["kernel-optimizations"], CARD).script
    assert tuning.UNIT in tuning.undo_script()


def test_an_experiment_keeps_what_deploy_has_set() -> None:
    """Its original values are those of the deploy, not those before it."""
    deployed = [line.replace("212992", "16777216") for line in CARD]
    tuned = tuning.plan(
        ["connext"], [*deployed, "sysctl net.core.rmem_default free 1"], tuning.EXPERIMENT_FOLDER
    )
    assert "sysctl net.core.rmem_default - 1" in tuned.script
    assert "sysctl net.core.rmem_max - 16777216" in tuned.script


def test_sets_of_tuned_have_the_settings_of_what_they_include() -> None:
    sysctls = tuning.load("tuned-network-latency").sysctls
    assert (sysctls["net.core.busy_poll"], sysctls["vm.swappiness"]) == (50, 10)
