"""Files that `k8sdds init` writes load with the project's own loaders, whatever the machines report."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from k8sdds.campaign import experiments, new_experiment
from k8sdds.cli import init
from k8sdds.deploy import facts, new_profile, profiles
from k8sdds.deploy.new_profile import Login
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.kubernetes import Kubernetes
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.profile import (
    Access,
    MetricsServer,
    Node,
    PodNetwork,
    Profile,
    Proxy,
    Registry,
    Software,
)
from k8sdds.system import yaml_template
from k8sdds.system.errors import InputError
from tests.sampling import sampled
from tests.unit.test_preflight import PI, changed

PI_4 = {
    **PI,
    "hostname": "raspberrypi",
    "model": "Raspberry Pi 4 Model B Rev 1.4",
    "memory_kib": "3884092",
    "address": "wlan0 192.0.2.7/24",
    "route": "default via 192.0.2.1 dev eth0",
}


def all_keys_enabled(text: str) -> str:
    """Return a template with every key that is commented out; text has a space after its `#`."""
    return re.sub(r"^(\s*)#(?! ?$| \S)", r"\1", text, flags=re.MULTILINE)


def keys(text: str) -> set[str]:
    return set(re.findall(r"^[\s#-]*([a-z0-9_]+):", text, re.MULTILINE))


def load_experiment(text: str, folder: Path) -> Experiment:
    path = folder / "written.yaml"
    path.write_text(text)
    return experiments.load(str(path))


def test_the_template_has_every_key_with_its_default(tmp_path: Path) -> None:
    text = new_experiment.template("mine")
    written = load_experiment(text, tmp_path)
    assert written.name == "mine"
    enabled = load_experiment(all_keys_enabled(text), tmp_path)
    # An override of None has no effect, and is not a value of its own.
    assert enabled == written
    for model in (Experiment, Sweep, LinkChoice):
        assert set(model.model_fields) <= keys(text)
    assert "1 to 67108864" in text and "one of reliable, best-effort" in text


@pytest.mark.parametrize("like", sampled(list(zip(experiments.EXPERIMENTS.names())), every_run=10))
def test_a_copy_of_an_experiment_differs_only_in_its_name(like: str, tmp_path: Path) -> None:
    copied = load_experiment(experiments.EXPERIMENTS.copy(like, "mine"), tmp_path)
    assert copied.model_dump() == {**experiments.load(like).model_dump(), "name": "mine"}


@pytest.mark.parametrize("name", ["true", "1", "1e5", "null"])
def test_a_name_that_yaml_reads_as_another_type_is_quoted(name: str, tmp_path: Path) -> None:
    for text in (experiments.EXPERIMENTS.copy("quickstart", name), new_experiment.template(name)):
        assert load_experiment(text, tmp_path).name == name


@pytest.mark.parametrize("like", profiles.PROFILES.names())
def test_a_copy_of_a_profile_differs_only_in_its_name(like: str) -> None:
    copied = profiles.parse(profiles.PROFILES.copy(like, "mine"), "mine.yaml")
    assert copied.model_dump() == {**profiles.load(like).model_dump(), "name": "mine"}


MACHINES = st.fixed_dictionaries(
    {
        "hostname": st.text(max_size=70),
        "model": st.one_of(st.just("Raspberry Pi 5 Model B Rev 1.0"), st.text(max_size=80)),
        "os__PRETTY_NAME": st.text(max_size=30),
        "machine": st.sampled_from(["x86_64", "aarch64", "armv7l", "riscv64"]),
        "memory_kib": st.sampled_from(["443004", "948000", "24684092"]),
        "swap_kib": st.sampled_from(["0", "102396"]),
        "route": st.sampled_from(["default via 192.0.2.1 dev eth0", "default dev wlan0", ""]),
        "address": st.sampled_from(["eth0 192.0.2.7/24", "eth0.100 198.51.100.9/24", "usb_0'# 192.0.2.9/24"]),
    }
)
ADDRESSES = st.one_of(
    st.ip_addresses().map(str),
    st.just("fe80::7%eth0"),
    st.from_regex(r"\A[a-z][a-z0-9-]{0,20}(\.example)?\Z"),
)
LOGINS = st.builds(
    Login,
    ADDRESSES,
    st.one_of(st.none(), st.sampled_from(["pi", "ubuntu"])),
    st.one_of(st.none(), st.integers(1, 65535)),
)


@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(
        st.tuples(LOGINS, st.none() | MACHINES), min_size=1, max_size=4, unique_by=lambda m: m[0].address
    )
)
def test_a_profile_loads_whatever_the_machines_report(
    machines: list[tuple[Login, dict[str, str] | None]],
) -> None:
    logins = [login for login, _ in machines]
    found = {
        login.address: facts.parse(
            "".join(f"{key.replace('__', '.')}\t{value}\n" for key, value in seen.items())
        )
        for login, seen in machines
        if seen is not None
    }
    text = new_profile.text("mine", logins, found)
    profile = profiles.parse(text, "mine.yaml")
    assert [node.address for node in profile.nodes] == [login.address for login in logins]
    for node, login in zip(profile.nodes, logins, strict=True):
        access = profile.access_of(node)
        assert (access.user, access.port) == (login.user, login.port)
    assert profiles.parse(all_keys_enabled(text), "mine.yaml") == profile


def test_a_new_profile_and_the_example_have_every_key() -> None:
    new, example = new_profile.text("mine", [Login("alpha")], {}), profiles.PROFILES.read("edge-lab")[1]
    for model in (Profile, Access, Node, Kubernetes, PodNetwork, MetricsServer, Registry, Proxy):
        assert set(model.model_fields) <= keys(new), model
        assert set(model.model_fields) - {"provider"} <= keys(example), model
    assert set(Software.model_fields) <= keys(new)


def test_a_profile_describes_what_the_machines_are() -> None:
    machines = new_profile.logins(["pi@192.0.2.7", "pi@192.0.2.8", "pi@alpha"])
    swap = {
        **PI_4,
        "hostname": "pi-2",
        "swap_kib": "102396",
        "model": "Raspberry Pi Compute Module 4 Rev 1.0",
    }
    found = {
        "192.0.2.7": facts.parse(changed(**PI_4)),
        "192.0.2.8": facts.parse(changed(**swap)),
        "alpha": facts.parse(changed(hostname="alpha.example")),
    }
    text = new_profile.text("mine", machines, found)
    profile = profiles.parse(text, "mine.yaml")
    assert [node.name for node in profile.nodes] == ["raspberrypi", "pi-2", "alpha"]
    assert profile.control_plane.name == "alpha" and profile.control_plane.roles == ["control-plane"]
    assert [node.architecture for node in profile.nodes] == ["arm64", "arm64", "amd64"]
    assert [node.labels.get("k8sdds.io/board") for node in profile.nodes] == ["pi4", "cm4", None]
    assert profile.access.user == "pi"
    assert "99 MiB of swap" in text and "flannel-wireguard (raspberrypi does not have wireguard" in text
    # The interfaces differ, so none is set; each is in the comment of its machine.
    assert profile.network.interface is None and "interface wlan0" in text
    # Two machines: the control plane is a worker too.
    text = new_profile.text("mine", machines[:2], {key: found[key] for key in ("192.0.2.7", "192.0.2.8")})
    profile = profiles.parse(text, "mine.yaml")
    assert profile.control_plane.roles == ["control-plane", "worker"]


def test_the_interface_of_the_ssh_addresses_is_set_if_it_has_no_default_route() -> None:
    text = changed(hostname="alpha", address="eth1 192.0.2.7/24", route="default via 192.0.2.1 dev eth0")
    profile = profiles.parse(
        new_profile.text("mine", [Login("192.0.2.7")], {"192.0.2.7": facts.parse(text)}), "mine.yaml"
    )
    assert profile.network.interface == "eth1"


@pytest.mark.parametrize(
    "text",
    ["", "@pi1", "pi@", "pi1:", "pi1:0", "pi1:65536", "pi1:ssh", "[]", "[2001:db8::7", "pi@-oX=1",
     "-oProxyCommand=x@pi1", "pi1;reboot", "[2001:db8::7]22"],
)  # fmt: skip
def test_wrong_logins(text: str) -> None:
    with pytest.raises(InputError, match="--node"):
        new_profile.logins([text])


@given(LOGINS, st.booleans())
def test_logins_of_all_addresses(login: Login, bracketed: bool) -> None:
    """An IPv6 address needs brackets only in front of a port."""
    in_brackets = ":" in login.address and (bracketed or login.port)
    address = f"[{login.address}]" if in_brackets else login.address
    user = f"{login.user}@" if login.user else ""
    port = f":{login.port}" if login.port else ""
    assert new_profile.logins([f"{user}{address}{port}"]) == [login]


def test_one_machine_cannot_be_named_twice() -> None:
    with pytest.raises(InputError, match="two machines have the address pi1"):
        new_profile.logins(["pi1", "pi@pi1:22"])


def test_files_are_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    init.init("experiment", "mine")
    before = Path("mine.yaml").read_text()
    with pytest.raises(InputError, match=r"mine\.yaml exists") as refused:
        init.init("profile", "mine", node=["alpha"], look=False)
    assert "--force" in refused.value.remedy and Path("mine.yaml").read_text() == before
    init.init("profile", "mine", node=["alpha"], look=False, force=True)
    assert profiles.load("./mine.yaml").name == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("kind", "name", "options", "message"),
    [
        ("experiment", "Mine", {}, "Mine"),
        ("experiment", "../mine", {}, r"\.\./mine"),
        ("experiment", "mine", {"output": "no/such.yaml"}, "no"),
        ("experiment", "mine", {"output": "mine.txt"}, r"does not end in \.yaml"),
        ("qos", "mine", {"output": "mine"}, r"does not end in \.xml"),
        ("qos", "mine", {"output": "mine.yaml"}, r"does not end in \.xml"),
        ("qos", "mine", {"node": ["alpha"]}, "describe machines"),
        ("rights", "mine", {"node": ["alpha"]}, "describe machines"),
        # Examples of machines are not contacted.
        ("profile", "mine", {"node": ["pi@pi1.example"]}, r"pi1\.example is an example"),
        ("profile", "mine", {"look": False}, "name the machines"),
        ("profile", "mine", {"node": ["alpha"], "like": "edge-lab"}, "--like and --node exclude each other"),
    ],
)
def test_wrong_names_files_and_options(
    kind: str, name: str, options: dict[str, Any], message: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        init.init(kind, name, **options)
    assert not list(tmp_path.iterdir())


def test_the_next_step_of_an_example_is_to_replace_its_addresses(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    init.init("profile", "mine", like="edge-lab")
    assert "replace the addresses, then run: k8sdds status mine.yaml" in capsys.readouterr().err
    init.init("profile", "local", like="one-machine")
    assert "Next: k8sdds status local.yaml" in capsys.readouterr().err


def test_a_copy_of_a_profile_of_zenoh_has_its_format(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"does not end in \.json5"):
        init.init("qos", "mine", like="rmw-zenoh", output="mine.xml")
    init.init("qos", "mine", like="rmw-zenoh")
    assert Path("mine.json5").read_text() == (REPOSITORY / "qos" / "rmw-zenoh.json5").read_text()
    assert "--set middleware=zenoh" in capsys.readouterr().err
    init.init("qos", "other", like="./mine.json5")
    assert Path("other.json5").read_text() == Path("mine.json5").read_text()


@pytest.mark.parametrize(("kind", "like"), [("qos", "ros2-default"), ("rights", "namespace")])
def test_other_files_are_copies(kind: str, like: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    init.init(kind, "mine", like=like)
    (written,) = tmp_path.iterdir()
    (original,) = REPOSITORY.glob(f"*/rights/{like}.yaml" if kind == "rights" else f"qos/{like}.xml")
    assert written.read_text() == original.read_text().replace(f'"{like}"', '"mine"')
    assert str(written.name) in capsys.readouterr().err


def test_the_policy_and_the_rights_of_a_prepared_namespace_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for like in ("network-policy", "namespace"):
        init.init("rights", like=like)
    assert {path.name for path in tmp_path.iterdir()} == {"network-policy.yaml", "rights.yaml"}


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5
))  # fmt: skip
def test_values_on_one_line_keep_their_meaning(value: object) -> None:
    from ruamel.yaml import YAML

    assert YAML(typ="safe", pure=True).load(f"key: {yaml_template.flow(value)}") == {"key": value}


# Examples


@pytest.mark.parametrize(
    "name", [name for name in profiles.PROFILES.names() if profiles.load(name).provider == "ssh"]
)
def test_shipped_profiles_of_machines_are_refused(name: str) -> None:
    with pytest.raises(InputError) as refused:
        profiles.targets(profiles.load(name))
    assert re.search(rf"{name}\.yaml:\d+: nodes\.\w+\.address: 192\.0\.2\.", refused.value.message)
    assert f"k8sdds init profile --like {name}" in refused.value.remedy


@pytest.mark.parametrize(
    ("address", "is_example"),
    [
        ("node1.example", True), ("pi.example.org", True), ("PI.Example.COM.", True), ("example", True),
        ("myexample", False), ("example.lab", False), ("10.0.0.2", False), ("fe80::1%eth0", False),
        ("192.0.2.255", True), ("2001:db8::1%eth0", True), (None, False),
    ],
)  # fmt: skip
def test_addresses_for_documentation(address: str | None, is_example: bool) -> None:
    assert Node(name="pi", address=address).is_example is is_example


REPOSITORY = Path(__file__).parents[2]


def test_examples_have_no_addresses_of_real_networks() -> None:
    texts = [
        *(REPOSITORY / "profiles").iterdir(), *REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"),
    ]  # fmt: skip
    for path in texts:
        for address in re.findall(r"(?:address: |@)(\d+\.\d+\.\d+\.\d+)", path.read_text()):
            assert Node(name="pi", address=address).is_example, (path, address)
            assert ipaddress.ip_address(address)
