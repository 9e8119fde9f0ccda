"""Registry mirrors and proxies of a profile in the plan of a deploy."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds.bundle import Bundle
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import profiles
from k8sdds.deploy.actions import PRELUDE, Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import proxy, registry
from k8sdds.deploy.plan import plan, to_json
from tests.effects import after
from tests.unit.test_deploy_plan import PROFILE, bundle, desired  # noqa: F401

LOGIN = "puller:correct-horse-battery"
PROXY = (
    "proxy: {http: 'http://proxy.lab:3128', https: 'http://proxy.lab:3128', no_proxy: [mirror.lab, .lab]}\n"
)


@pytest.fixture
def mirrors(tmp_path: Path) -> str:
    """Return the key of a profile with a mirror that needs a certificate and a login."""
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    (tmp_path / "login").write_text(LOGIN + "\n")
    (tmp_path / "login").chmod(0o600)
    return (
        f"registry: {{mirrors: ['https://mirror.lab:5000'], ca_file: {tmp_path / 'ca.crt'},"
        f" login_file: {tmp_path / 'login'}}}\n"
    )


def state_of(bundle: Bundle, text: str, machines: dict | None = None) -> DesiredState:  # noqa: F811
    state = desired(bundle, PROFILE + text, machines)
    return replace(state, login=profiles.registry_login(state.profile))


def of(actions: list[Action], phase: str, node: str = "pi1") -> list[Action]:
    return [action for action in actions if (action.phase, action.node) == (phase, node)]


def test_mirrors_are_configured_and_checked_on_every_node(bundle: Bundle, mirrors: str) -> None:  # noqa: F811
    state = state_of(bundle, mirrors)
    actions = plan(state)
    assert len([action for action in actions if action.phase == "registry"]) == 3
    (action,) = of(actions, "registry")
    subprocess.run(["sh", "-n"], input=(PRELUDE + action.script).encode(), check=True)
    assert "check mirror.lab:5000" in action.script and action.script.index(
        "check mirror"
    ) < action.script.index(f"put {registry.HOSTS_FILE} 0600")
    hosts, only = (file.content for file in action.private)
    token = base64.b64encode(LOGIN.encode()).decode()
    assert '[host."https://mirror.lab:5000"]' in hosts and f'Authorization = "Basic {token}"' in hosts
    assert f'ca = "{registry.CA_FILE}"' in hosts and 'server = "http://127.0.0.1:1"' in only
    # containerd reads the folder, and is configured before.
    (configure,) = [a for a in of(actions, "runtime") if "configure containerd" in a.title]
    assert 'config_path = "/etc/containerd/k8sdds-certs.d"' in configure.script
    assert actions.index(configure) < actions.index(action)
    # No plan, log or record contains the login.
    printed = json.dumps([to_json(action) for action in actions]) + repr(actions) + repr(state)
    assert token not in printed and LOGIN not in printed and "correct-horse" not in printed
    assert "correct-horse" not in json.dumps(state.profile.model_dump(mode="json"))


def test_second_plan_is_empty_and_changes_are_found(bundle: Bundle, mirrors: str) -> None:  # noqa: F811
    state = state_of(bundle, mirrors + PROXY)
    machines = after(state.facts, state.control_plane, plan(state))
    assert plan(state_of(bundle, mirrors + PROXY, machines)) == []
    without = plan(state_of(bundle, "", machines))
    assert [action.title for action in of(without, "proxy")] == ["use no proxy"]
    assert [action.title for action in of(without, "registry")] == ["use no mirror"]
    assert all(f"rm -f {path}\n" in of(without, "registry")[0].script for path in registry.FILES)
    machines = after(machines, state.control_plane, without)
    assert plan(state_of(bundle, "", machines)) == []
    # A cluster that never had either has no action for it.
    assert not {"proxy", "registry"} & {action.phase for action in plan(state_of(bundle, ""))}


def test_proxies_of_apt_containerd_and_kubeadm(bundle: Bundle) -> None:  # noqa: F811
    state = state_of(bundle, PROXY)
    actions = plan(state)
    (action,) = of(actions, "proxy")
    subprocess.run(["sh", "-n"], input=(PRELUDE + action.script).encode(), check=True)
    written = proxy.files(state)
    assert 'Acquire::https::Proxy "http://proxy.lab:3128";' in written[proxy.APT_FILE]
    assert 'Acquire::http::Proxy::mirror.lab "DIRECT";' in written[proxy.APT_FILE]
    assert ".lab" not in written[proxy.APT_FILE].replace("mirror.lab", "").replace("proxy.lab", "")
    direct = proxy.no_proxy(state)
    assert {
        "127.0.0.1", "10.244.0.0/16", "10.96.0.0/12", "192.0.2.10", "192.0.2.12", "pi1", ".svc", ".lab",
    } <= set(direct)  # fmt: skip
    assert f'Environment="NO_PROXY={",".join(direct)}"' in written[proxy.CONTAINERD_FILE]
    # Proxies are set before anything is downloaded.
    assert actions.index(action) < actions.index(of(actions, "runtime")[0])
    for phase, node, command in (("control plane", "master", "init"), ("join", "pi1", "join")):
        (kubeadm,) = [a for a in of(actions, phase, node) if f"kubeadm {command}" in a.script]
        assert f"NO_PROXY={','.join(direct)} kubeadm {command}" in kubeadm.script
        subprocess.run(["sh", "-n"], input=(PRELUDE + kubeadm.script).encode(), check=True)


def test_machines_that_limit_leaves_out_are_reached_directly(bundle: Bundle) -> None:  # noqa: F811
    text = PROFILE.replace("name: pi2", "name: pi2, address: 192.0.2.12")
    state = desired(bundle, text + PROXY)
    *others, down = state.profile.nodes
    part = state.profile.model_copy(update={"nodes": others})
    machines = {name: machine for name, machine in state.facts.items() if name != down.name}
    limited = replace(state, profile=part, facts=machines, left_out=[down])
    assert {"192.0.2.12", "pi2"} <= set(proxy.no_proxy(limited))
    # The file does not change, so containerd is not restarted.
    assert proxy.files(limited) == proxy.files(state)
    zone = down.model_copy(update={"address": "fe80::7%eth0"})
    assert "%" not in proxy.files(replace(limited, left_out=[zone]))[proxy.CONTAINERD_FILE]


def test_status_reports_what_is_not_applied(bundle: Bundle, mirrors: str) -> None:  # noqa: F811
    state = state_of(bundle, mirrors + PROXY)
    machines = after(state.facts, state.control_plane, plan(state))
    assert not list(flow._outdated(state.profile, machines["pi1"]))
    without = state_of(bundle, "").profile
    assert [note.partition(":")[0] for note in flow._outdated(without, machines["pi1"])] == [
        "registry",
        "proxy",
    ]
    claimed = after(state.facts, state.control_plane, plan(state_of(bundle, "")))
    assert all("not configured yet" in note for note in flow._outdated(state.profile, claimed["pi1"]))
    assert not list(flow._outdated(state.profile, state.facts["pi1"]))
