"""Plans made from recorded facts, including hardware and packages that are not available here."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds.bundle import Bundle, Item
from k8sdds.deploy import deploy as flow
from k8sdds.deploy import destroy, facts, fixes, limits, local_nodes, network_install, preflight
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts import ETCD_DATA, Facts, cluster_state
from k8sdds.deploy.phases import kubeadm
from k8sdds.deploy.phases.machine import runtime
from k8sdds.deploy.plan import plan, to_json
from k8sdds.deploy.runner import redact
from k8sdds.deploy.software import PACKAGES, Software, for_profile, with_packages
from k8sdds.model.profile import Profile
from k8sdds.nodes import LocalNode, SharedFolder
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError, PrerequisiteError
from tests import bundles
from tests.effects import after
from tests.unit.test_preflight import PI, changed, parsed

IMAGES = (
    *(f"registry.k8s.io/{name}:v1.36.3" for name in ("kube-apiserver", "kube-proxy")),
    "registry.k8s.io/coredns/coredns:v1.14.2",
    "ghcr.io/flannel-io/flannel:v0.28.4",
    "k8sdds.local/tools:1",
)
NODES = ("master", "pi1", "pi2")
PROFILE = """\
name: mine
nodes:
  - {name: master, roles: [control-plane], labels: {rack: one}}
  - {name: pi1, labels: {k8sdds.io/board: pi4}}
  - {name: pi2}
software: bundle
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Return a bundle that has only an index: a plan does not need the files."""
    folder = tmp_path_factory.mktemp("bundle")
    items, links = [], ("/usr/local/bin/kubeadm", "/usr/local/bin/kubelet")
    for arch in ("amd64", "arm64"):
        path, digest = f"bin/{arch}/kubernetes", hashlib.sha256(arch.encode()).hexdigest()
        target = "/usr/local/bin/kubernetes"
        items.append(Item("binary", "kubernetes", "1.36.3", arch, path, digest, 1, target, links=links))
        items += [
            bundles.image(name, hashlib.sha256((arch + name).encode()).hexdigest(), arch) for name in IMAGES
        ]
    return bundles.write(folder, items, ("amd64", "arm64"), "1.36.3")


def desired(
    bundle: Bundle, text: str = PROFILE, machines: Mapping[str, Facts] | None = None, password: str = ""
) -> DesiredState:
    """Return the input of a plan: an x86 control plane and Raspberry Pis, or the given machines."""
    profile = yaml_text.parse(text, Profile, "mine.yaml")
    network = network_install.render(profile, password or None)
    return DesiredState(profile, machines or bare(profile), Software(profile, bundle), network)


def bare(profile: Profile) -> dict[str, Facts]:
    """Return the facts of machines without Kubernetes, based on a recorded probe."""
    return {
        node.name: facts.parse(
            changed(
                hostname=node.name,
                containerd="1.7.24",
                address=f"eth0 192.0.2.{10 + number}/24",
                **({} if node.is_control_plane else PI),
            )
        )
        for number, node in enumerate(profile.nodes)
    }


def deployed(state: DesiredState) -> dict[str, Facts]:
    """Return the facts of the machines after the whole plan."""
    return after(state.facts, state.control_plane, plan(state))


def without(machine: Facts, key: str, entry: str = "") -> Facts:
    """Return facts without a value, or without one entry of a list."""
    values = {name: value for name, value in machine.values.items() if name != key}
    kept = tuple(item for item in machine.all(key) if entry and item != entry)
    return replace(machine, values=values, lists={**machine.lists, key: kept})


def phases(actions: Iterable[Action], node: str) -> list[str]:
    return list(dict.fromkeys(action.phase for action in actions if action.node == node))


def test_plan_for_machines_without_kubernetes(bundle: Bundle) -> None:
    actions = plan(desired(bundle))
    assert phases(actions, "master") == [
        "claim", "runtime", "kubernetes packages", "control plane", "network", "metrics server", "images",
        "join", "labels", "smoke test",
    ]  # fmt: skip
    assert phases(actions, "pi1") == ["claim", "runtime", "kubernetes packages", "images", "join"]
    assert actions[-1].title == "wait until metrics-server is ready"
    # Each machine gets the programs of its architecture, and workers get nothing of a control plane.
    by_node = {name: [a for a in actions if a.node == name] for name in NODES}
    (upload,) = [item for action in by_node["pi1"] for item in action.uploads]
    assert upload.sha256 == hashlib.sha256(b"arm64").hexdigest() and not upload.shared
    names = {node: {image.name for action in by_node[node] for image in action.images} for node in NODES}
    assert names["master"] == set(IMAGES)
    assert names["pi1"] == set(IMAGES) - {"registry.k8s.io/kube-apiserver:v1.36.3"}
    # Workers wait for the control plane, and the smoke test waits for all nodes.
    (join,) = [a for a in by_node["pi1"] if a.phase == "join"]
    assert join.needs == (("master", "control plane"),)
    (smoke,) = [a for a in actions if a.phase == "smoke test"]
    assert {("pi1", "join"), ("pi2", "join"), ("pi1", "images")} <= set(smoke.needs)
    assert "smoke-pi2" in smoke.script and "239.255.0.1:7000 --count" not in smoke.script
    # Multicast is tested where the network supports it.
    (smoke,) = [a for a in plan(desired(bundle, PROFILE + "network: weavenet\n")) if a.phase == "smoke test"]
    assert "239.255.0.1:7000 --count" in smoke.script


def test_what_waits_for_all_nodes_has_more_time_for_more_of_them(bundle: Bundle) -> None:
    def waiting(count: int) -> dict[str, Action]:
        """Return by phase the actions for a cluster with so many nodes, whose duration depends on it."""
        workers = "".join(
            f"- {{name: w{number}, labels: {{a: b}}, taints: ['c:NoSchedule']}}\n"
            for number in range(1, count)
        )
        text = f"name: mine\nsoftware: bundle\nnodes:\n- {{name: master, roles: [control-plane]}}\n{workers}"
        machines = deployed(desired(bundle, text))
        values = {**machines["master"].values, "kube_proxy": "nftables"}
        changed_proxy = plan(
            desired(bundle, text, machines | {"master": replace(machines["master"], values=values)})
        )
        actions = [*plan(desired(bundle, text)), *changed_proxy]
        found = {action.phase: action for action in actions if action.node == "master"}
        return {phase: found[phase] for phase in ("join", "labels", "taints", "kube-proxy", "smoke test")}

    few, many = waiting(3), waiting(50)
    for phase, action in many.items():
        assert action.timeout_s - few[phase].timeout_s >= (50 - 3) * limits.PER_NODE_S, phase
        # The script reports what is missing before its connection is closed.
        within = [int(text) for text in re.findall(r"(?:--timeout[= ]|%s\) \+ )(\d+)", action.script)]
        assert sum(within) < action.timeout_s, (phase, within)
    assert "--timeout=430s" in many["join"].script and "--timeout=370s" in many["smoke test"].script


def test_local_nodes_install_programs_only_from_the_bundle_that_they_have_mounted(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    software = f"{{source: bundle, bundle: {bundle.folder}}}"
    text = f"name: mine\nprovider: local\nsoftware: {software}\nnodes:\n  - {{name: one, roles: [control-plane]}}\n"
    profile = yaml_text.parse(text, Profile, "mine.yaml")
    paths = [Path("unused")] * 3
    monkeypatch.setattr(Bundle, "wrong_architectures", lambda self, arch: [])  # it has only an index
    for mounted, shared in ((bundle.folder, "/bundle/bin/amd64/kubernetes"), (bundle.folder.parent, "")):
        shares = (SharedFolder(mounted, "/bundle"),)
        node = LocalNode("mine", "one", "192.0.2.1", 22, "k8sdds", "amd64", "running", *paths, (), shares)
        monkeypatch.setattr(local_nodes.nodes, "ls", lambda cluster, node=node: [node])
        (upload,) = for_profile(profile, ["amd64"], print).binaries("amd64")
        assert upload.shared == shared


def test_official_programs_replace_links_and_links_replace_them_again(bundle: Bundle) -> None:
    """A built program stays on a node when official builds replace its links."""
    names = {
        f"/usr/local/bin/{name}": hashlib.sha256(name.encode()).hexdigest() for name in ("kubeadm", "kubelet")
    }
    others = [item for item in bundle.items if item.kind != "binary"]
    official = [
        Item("binary", path.rpartition("/")[2], "1.36.3", arch, f"bin/{arch}/p", sha, 1, path)
        for arch in bundle.arches for path, sha in names.items()
    ]  # fmt: skip
    downloaded = replace(bundle, items=(*official, *others))
    built = deployed(desired(bundle))
    with_files = deployed(desired(downloaded, machines=built))
    assert with_files["pi1"].pairs("file").items() >= names.items()
    assert plan(desired(downloaded, machines=with_files)) == []
    planned = [a for a in plan(desired(bundle, machines=with_files)) if a.phase == "kubernetes packages"]
    assert [a.node for a in planned] == list(NODES)
    for action in planned:
        assert action.uploads == () and "systemctl restart kubelet" in action.script
        assert all(f"ln -sfn /usr/local/bin/kubernetes {path}\n" in action.script for path in names)
    assert plan(desired(bundle, machines=deployed(desired(bundle, machines=with_files)))) == []
    # A deleted link is restored alone.
    pi1 = without(built["pi1"], "symlink", "/usr/local/bin/kubeadm /usr/local/bin/kubernetes")
    (restore,) = [a for a in plan(desired(bundle, machines={**built, "pi1": pi1})) if a.node == "pi1"]
    assert "ln -sfn /usr/local/bin/kubernetes /usr/local/bin/kubeadm\n" in restore.script
    assert "/usr/local/bin/kubelet" not in restore.script


@pytest.mark.parametrize("seed", range(3))
def test_interrupted_deploy_is_completed_without_repeating_changes(bundle: Bundle, seed: int) -> None:
    chance = random.Random(seed)
    state = desired(bundle)
    actions = plan(state)
    own = {name: [action for action in actions if action.node == name] for name in NODES}
    done = [action for steps in own.values() for action in steps[: chance.randint(0, len(steps))]]
    # An action runs only after the steps that it needs.
    for action in actions:
        left = {(item.node, item.phase) for item in actions if item not in done}
        if action in done and left & set(action.needs):
            steps = own[action.node]
            done = [item for item in done if item not in steps[steps.index(action) :]]
    machines = after(state.facts, state.control_plane, done)
    again = plan(desired(bundle, machines=machines))
    left = [action for action in actions if action not in done and "wait until" not in action.title]
    assert {(a.node, a.phase) for a in again} >= {(action.node, action.phase) for action in left}
    # Waiting and testing is repeated; changes of a machine are not.
    changes = {(a.node, a.title) for a in done if a.phase != "smoke test" and "wait until" not in a.title}
    assert not changes & {(a.node, a.title) for a in again}
    assert plan(desired(bundle, machines=after(machines, state.control_plane, again))) == []


def test_plan_contains_only_differences(bundle: Bundle) -> None:
    machines = deployed(desired(bundle))
    stopped = replace(machines["pi2"], lists={**machines["pi2"].lists, "unit": ("containerd failed",)})
    planned = [(a.node, a.phase) for a in plan(desired(bundle, machines={**machines, "pi2": stopped}))]
    assert planned == [("pi2", "runtime"), ("master", "smoke test")]
    resolution = PROFILE + "metrics_server: {resolution_s: 30}\n"
    planned = [(a.node, a.phase) for a in plan(desired(bundle, resolution, machines))]
    assert planned == [("master", "metrics server"), ("master", "smoke test"), ("master", "metrics server")]


def test_another_network_is_replaced_when_all_workers_are_complete(bundle: Bundle) -> None:
    machines = deployed(desired(bundle))
    state = desired(bundle, PROFILE + "network: flannel-hostgw\n", machines)
    (network, smoke) = plan(state)
    assert network.title == "replace flannel-vxlan by flannel-hostgw, and recreate all pods"
    assert network.script == "" and smoke.phase == "smoke test"
    assert ("pi1", "join") in network.needs and not any(node == "master" for node, _ in network.needs)


def test_multus_is_applied_next_to_the_network_and_removed_with_it(bundle: Bundle) -> None:
    machines = deployed(desired(bundle))
    with_multus = desired(bundle, PROFILE + "second_network: macvlan\n", machines)
    network, *others = (action for action in plan(with_multus) if action.node == "master")
    assert network.title == "apply the network flannel-vxlan with Multus and macvlan"
    assert "NetworkAttachmentDefinition" in network.script and others[-1].phase == "smoke test"
    machines = deployed(with_multus)
    assert plan(replace(with_multus, facts=machines)) == []
    removal = plan(desired(bundle, PROFILE, machines))[0]
    assert removal.title == "remove Multus, install flannel-vxlan again, and recreate all pods"


def test_new_control_plane_makes_workers_join_again(bundle: Bundle) -> None:
    """The data of the control plane is lost, while the workers report that they have joined."""
    state = desired(bundle)
    machines = deployed(state)
    without_data = without(machines["master"], "leftover", ETCD_DATA)
    for master in (
        bare(state.profile)["master"],
        without(without_data, "kube.api"),
        # The processes still run and answer.
        without_data,
    ):
        planned = plan(desired(bundle, machines={**machines, "master": master}))
        assert {("master", "control plane"), ("pi1", "join"), ("pi2", "join")} <= {
            (action.node, action.phase) for action in planned
        }
        assert {"network", "labels"} <= set(phases(planned, "master"))
        (join,) = [action for action in planned if (action.node, action.phase) == ("pi1", "join")]
        assert "kubeadm reset" in join.script and "delete node" not in join.private[0].script


@pytest.mark.parametrize("up", [True, False])
def test_reinstalled_worker_joins_under_its_former_name(bundle: Bundle, up: bool) -> None:
    state = desired(bundle)
    machines = deployed(state)
    machines["pi1"] = bare(state.profile)["pi1"]
    if not up:
        machines["master"] = without(machines["master"], "kube.api")
    planned = plan(desired(bundle, machines=machines))
    joins = [action for action in planned if action.phase == "join" and action.private]
    assert [action.node for action in joins] == ["pi1"]
    assert "kubectl delete node pi1 --ignore-not-found" in joins[0].private[0].script
    (labels,) = [action for action in planned if action.phase == "labels"]
    assert "k8sdds.io/board" in labels.script


def test_packages_of_the_kubernetes_project(bundle: Bundle) -> None:
    actions = plan(desired(bundle, PROFILE.replace("software: bundle", "software: packages")))
    (install,) = [a for a in actions if a.node == "pi1" and a.phase == "kubernetes packages"]
    assert "/core:/stable:/v1.36/deb/" in install.script and "kubelet='1.36.3-*'" in install.script
    assert not any(a.uploads for a in actions)
    # Images of Kubernetes are pulled from its registry; the images of k8sdds are in no registry.
    names = {image.name for action in actions for image in action.images}
    assert names == {"k8sdds.local/tools:1"}


def test_kubeadm_configuration_follows_the_machines(bundle: Bundle) -> None:
    state = desired(bundle)
    init, cluster, kubelet, proxy = documents(state)
    assert init["localAPIEndpoint"]["advertiseAddress"] == "192.0.2.10"
    assert {"name": "node-ip", "value": "192.0.2.10"} in init["nodeRegistration"]["kubeletExtraArgs"]
    # The recorded machine has cgroup v1, which this Kubernetes accepts only when configured to.
    assert init["nodeRegistration"]["ignorePreflightErrors"] == ["SystemVerification"]
    assert kubelet["failCgroupV1"] is False and kubelet["imageGCHighThresholdPercent"] == 100
    assert cluster["kubernetesVersion"] == "v1.36.3" and "127.0.0.1" in cluster["apiServer"]["certSANs"]
    fixed = {name: facts.parse(changed(hostname=name, conntrack="fixed")) for name in NODES}
    assert documents(replace(state, facts=fixed))[3]["conntrack"] == {"maxPerCore": 0}
    assert "conntrack" not in proxy and "taints" not in init["nodeRegistration"]
    both = desired(bundle, PROFILE.replace("roles: [control-plane]", "roles: [control-plane, worker]"))
    assert kubeadm.node_registration(both, both.profile.control_plane)["taints"] == []
    # Before Kubernetes 1.31, kubeadm required arguments as a mapping.
    old = desired(bundle, PROFILE.replace("software: bundle", "kubernetes: {version: 1.26.15}"))
    init = documents(old)[0]
    assert init["apiVersion"].endswith("v1beta3")
    assert init["nodeRegistration"]["kubeletExtraArgs"] == {"node-ip": "192.0.2.10"}
    assert "patches" not in init


def test_kubelets_of_local_nodes_need_fewer_inotify_instances(bundle: Bundle) -> None:
    text = PROFILE.replace("software: bundle", "kubernetes: {version: 1.26.15}")
    for state, gates in ((desired(bundle), True), (desired(bundle, text), False)):
        local = replace(state, profile=state.profile.model_copy(update={"provider": "local"}))
        kubelet = documents(local)[2]
        assert kubelet["volumePluginDir"] == "/proc/none" and ("featureGates" in kubelet) is gates
        assert not {"volumePluginDir", "featureGates"} & set(documents(state)[2])


NFTABLES = PROFILE + "kubernetes: {kube_proxy: nftables}\n"


def test_kube_proxy_changes_its_mode_on_a_cluster_that_runs(bundle: Bundle) -> None:
    assert [documents(desired(bundle, text))[3]["mode"] for text in (PROFILE, NFTABLES)] == [
        "iptables",
        "nftables",
    ]
    state = desired(bundle, NFTABLES, deployed(desired(bundle)))
    (change, smoke) = plan(state)
    assert (change.phase, change.title, smoke.phase) == ("kube-proxy", "use the mode nftables", "smoke test")
    assert change.script.index("rollout status") < change.script.index(f" {kubeadm.CONFIG_FILE}\n")
    assert plan(replace(state, facts=after(state.facts, "master", [change]))) == []


def test_the_cpu_manager_changes_its_policy_on_each_node(bundle: Bundle) -> None:
    static = PROFILE + "kubernetes: {cpu_manager: static}\n"
    new = [action for action in plan(desired(bundle, static)) if action.phase == "cpu manager"]
    assert {action.node for action in new} == {node.name for node in desired(bundle).profile.nodes}
    assert not [action for action in plan(desired(bundle)) if action.phase == "cpu manager"]
    machines = deployed(desired(bundle))
    for text, policy in ((static, "static"), (PROFILE, "none")):
        (*changes, smoke) = plan(desired(bundle, text, machines))
        assert {change.title for change in changes} == {
            f"use the policy {policy} of the kubelet's CPU manager"
        }
        assert smoke.phase == "smoke test" and all("rm -f $state" in change.script for change in changes)
        for change in changes:
            machines = after(machines, change.node, [change])
        assert plan(desired(bundle, text, machines)) == []


def test_the_cpu_manager_keeps_a_core() -> None:
    profile = parsed(PROFILE + "kubernetes: {cpu_manager: static}\n")
    machine = facts.parse(changed(hostname="pi1", cpus="1") + "resolves\tpi1\n")
    (problem,) = preflight.check(profile, {"pi1": machine})
    assert "has one core" in problem.what


def test_ipvs_needs_its_kernel_module_and_a_new_cluster() -> None:
    profile = parsed(PROFILE + "kubernetes: {kube_proxy: ipvs}\n")
    existing = {"marker": profile.name, "flag": "initialised", "kube_proxy": "iptables"}
    for name, values, feature, message in (
        ("pi1", {"hostname": "pi1"}, "", "does not support ipvs, which kube-proxy in mode ipvs needs"),
        ("master", existing, "feature\tipvs\n", "cannot be changed to ipvs"),
    ):
        machine = facts.parse(changed(**values) + f"resolves\t{name}\n{feature}")
        (problem,) = preflight.check(profile, {name: machine})
        assert message in problem.what
    assert f"k8sdds destroy {profile.name}" in problem.remedy


def test_images_of_the_networks_that_the_profile_names_are_imported(bundle: Bundle) -> None:
    """Of those in the bundle, so that a switch does not wait for an import. Afterward nothing is left to do."""

    def imported(text: str) -> set[str]:
        actions = [a for a in plan(desired(bundle, text)) if a.node == "pi1" and a.phase == "images"]
        return {image.name for action in actions for image in action.images}

    flannel, host = "ghcr.io/flannel-io/flannel:v0.28.4", PROFILE + "network: host\n"
    assert imported(host) == {"k8sdds.local/tools:1"}
    several = host + "networks: [flannel-hostgw, flannel-vxlan, kube-router]\n"
    assert imported(several) == {"k8sdds.local/tools:1", flannel}
    state = desired(bundle, several)
    assert plan(replace(state, facts=deployed(state))) == []
    # The images of the installed network are imported before.
    assert imported(PROFILE + "networks: [flannel-hostgw]\n") == {"k8sdds.local/tools:1"}


def documents(state: DesiredState) -> list[dict]:
    return [json.loads(item) for item in kubeadm.configuration(state).split("---\n")]


def test_containerd_configuration_follows_the_capabilities(bundle: Bundle) -> None:
    state = desired(bundle)

    def config(capabilities: str) -> str:
        machine = facts.parse(changed(capabilities=capabilities, containerd="1.7.24"))
        actions = runtime(replace(state, facts={"pi1": machine}), state.profile.node("pi1"))
        return next(action.script for action in actions if action.title == "configure containerd")

    assert "restrict_oom_score_adj = true" in config("000001fffeffffff")
    assert "restrict_oom_score_adj" not in config("000001ffffffffff")


def test_plans_contain_no_secrets(bundle: Bundle, tmp_path: Path) -> None:
    secret = "correct-horse-battery-staple-" * 4
    (tmp_path / "psk").write_text(secret)
    text = PROFILE + f"network: {{name: weavenet-encrypt, password_file: {tmp_path / 'psk'}}}\n"
    actions = plan(desired(bundle, text, password=secret))
    printed = json.dumps([to_json(action) for action in actions])
    encoded = base64.b64encode(secret.encode()).decode()
    assert secret not in printed and encoded not in printed and encoded not in repr(actions)
    (network,) = [a for a in actions if a.phase == "network"]
    assert [item.path for item in network.private] == ["/run/k8sdds-deploy/objects.json"]
    assert encoded in network.private[0].content


def test_plan_of_some_nodes(bundle: Bundle) -> None:
    state = desired(bundle)
    (labels,) = [a for a in plan(state) if a.phase == "labels"]
    assert (
        "kubectl patch node pi1 --type merge" in labels.script and '"k8sdds.io/board": "pi4"' in labels.script
    )
    assert {a.node for a in plan(state, ["pi1"])} == {"pi1"}
    with pytest.raises(InputError, match="--limit leaves out master"):
        flow.plan_within(state, ["pi1"])


def test_labels_that_the_profile_drops_are_removed_and_other_labels_stay(bundle: Bundle) -> None:
    machines = deployed(desired(bundle))
    (line,) = [node for node in machines["master"].all("kube.node") if node.startswith("master ")]
    assert line == 'master True rack {"rack": "one"}'
    added = line.replace('"one"}', '"one", "zone": "a", "rack2": "two"}')
    lines = tuple(added if node == line else node for node in machines["master"].all("kube.node"))
    machines["master"] = replace(machines["master"], lists={**machines["master"].lists, "kube.node": lines})

    def labels(text: str, machines: Mapping[str, Facts] = machines) -> list[Action]:
        state = desired(bundle, PROFILE.replace("{rack: one}", text), machines)
        return [action for action in plan(state) if action.phase == "labels"]

    assert labels("{rack: one}") == []
    # A renamed label: the new one is set and the old one removed; the annotation follows.
    (action,) = labels("{row: one}")
    assert (
        '{"labels": {"row": "one", "rack": null}, "annotations": {"k8sdds.io/labels": "row"}}'
        in action.script
    )
    (dropped,) = labels("{}")
    assert '{"labels": {"rack": null}, "annotations": {"k8sdds.io/labels": null}}' in dropped.script
    # A label that the user has set to the same value stays the user's, even if the profile drops it later.
    assert labels("{rack: one, zone: a}") == []
    done = after(machines, "master", [action])
    assert labels("{row: one}", done) == []
    assert cluster_state(done["master"]).labels["master"] == {"zone": "a", "rack2": "two", "row": "one"}


def test_limit_leaves_out_workers_that_are_down_or_do_not_fit(bundle: Bundle) -> None:
    state = desired(bundle)
    machines = {**state.facts, "pi1": facts.parse(changed(hostname="pi1", swap_kib="4096", **PI))}
    del machines["pi2"]
    lost = {"pi2": PrerequisiteError("pi2: cannot be reached", "is it on?")}
    survey = flow.MachineSurvey(machines, lost)
    # Without a limit nothing is left out. With a limit, its nodes and the control plane must fit.
    assert flow.restrict(state.profile, survey, ()) == (state.profile, survey)
    part, kept = flow.restrict(state.profile, survey, ["master"])
    assert [node.name for node in part.nodes] == ["master"] and not kept.failures and "pi1" not in kept.facts
    assert any("left out because of --limit: pi1: has 4 MiB of swap" in note for note in kept.notes)
    assert any("left out because of --limit: pi2: cannot be reached" in note for note in kept.notes)
    # A worker that has not joined would be waited for.
    for found, names in ((state.facts, ["master"]), (deployed(state), ["master", "pi1"])):
        found = {name: found[name] for name in ("master", "pi1")}
        part, kept = flow.restrict(state.profile, flow.MachineSurvey(found, lost), ["master"])
        assert [node.name for node in part.nodes] == names, kept.notes
    part, kept = flow.restrict(state.profile, survey, ["pi1"])
    assert [node.name for node in part.nodes] == ["master", "pi1"]
    assert any("swap" in problem.what for problem in kept.problems)
    headless = flow.MachineSurvey(
        {"pi1": machines["pi1"]}, {"master": PrerequisiteError("master: cannot be reached")}
    )
    assert "master" in flow.restrict(state.profile, headless, ["pi1"])[1].failures


def test_node_address_comes_from_the_default_route_or_the_named_interface(bundle: Bundle) -> None:
    text = changed(route="default via 10.0.0.1 dev wlan0") + "address\twlan0 10.0.0.7/24\n"
    state = desired(bundle)
    assert replace(state, facts={"pi1": facts.parse(text)}).address("pi1") == "10.0.0.7"
    named = desired(bundle, PROFILE + "network: {name: flannel-vxlan, interface: eth0}\n")
    assert named.address("pi1") == "192.0.2.11"
    with pytest.raises(InputError, match="eth7 has no IPv4 address"):
        replace(state, facts={"pi1": Facts({"route": "default dev eth7"})}).address("pi1")


def test_kernel_command_line_of_a_raspberry_pi() -> None:
    enabled = "cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory"
    for line, new in (
        ("console=tty1 rootwait", f"console=tty1 rootwait {enabled}"),
        ("a cgroup_disable=memory b", f"a b {enabled}"),
        ("cgroup_enable=memory x", "cgroup_enable=memory x cgroup_enable=cpuset cgroup_memory=1"),
    ):
        assert fixes.changed_line(line) == new and fixes.changed_line(new) == new
    assert not fixes.lacks_memory_cgroup(facts.parse(changed(**PI, boot_file="/boot/firmware/cmdline.txt")))


def test_machines_are_rebooted_only_if_nothing_else_prevents_the_deploy(bundle: Bundle) -> None:
    off = {**PI, "controllers": "cpu", "boot_file": "/boot/firmware/cmdline.txt", "boot_line": "rootwait"}
    profile = desired(bundle).profile

    def names(limit: Iterable[str] = (), **more: str) -> list[str]:
        texts = {"master": changed(), "pi1": changed(**off), "pi2": changed(**off, **more)}
        machines = {name: facts.parse(text + f"resolves\t{name}\n") for name, text in texts.items()}
        survey = flow.MachineSurvey(machines, {}, preflight.check(profile, machines))
        return flow.machines_to_reboot(profile, survey, list(limit))

    assert names() == ["pi1", "pi2"]
    with pytest.raises(PrerequisiteError, match="pi2: belongs to the cluster 'other'") as error:
        names(marker="other")
    assert "memory cgroup" not in str(error.value)
    # A machine that is left out is not changed, so it prevents the deploy.
    with pytest.raises(PrerequisiteError, match="pi2: the memory cgroup is not enabled"):
        names(["pi1"])
    machines = {name: facts.parse(changed()) for name in ("master", "pi1", "pi2")}
    assert flow.machines_to_reboot(profile, flow.MachineSurvey(machines)) == []


def test_logs_contain_no_secrets() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----"
    output = redact(f"kubeadm join --token abcdef.0123456789abcdef\n{key}")
    assert "0123456789abcdef" not in output and "AAAA" not in output
    assert redact("client-key-data: QUJD\nfine") == "client-key-data: ******\nfine"


def test_what_is_not_ready_on_a_cluster() -> None:
    text = (
        "kube.api\tready\nkube.node\tone True  {}\nkube.node\ttwo Unknown  {}\n"
        "kube.object\tDaemonSet/k8sdds-network/flannel abc 1/2 flannel-vxlan \n"
        "kube.object\tDeployment/kube-system/metrics-server def /1  \n"
    )
    state = cluster_state(facts.parse(text))
    assert state.ready == {"one": True, "two": False}
    assert state.not_ready == {"DaemonSet/k8sdds-network/flannel", "Deployment/kube-system/metrics-server"}
    assert not cluster_state(facts.parse("kube.node\tone True  {}\n")).up


def install_containerd(profile: Profile, machines: Mapping[str, Facts], software: Software) -> Action:
    """Return the action that installs containerd on pi1."""
    state = DesiredState(profile, machines, software, network_install.render(profile))
    actions = runtime(state, profile.node("pi1"))
    return next(action for action in actions if action.title == "install containerd")


def test_network_that_the_bundle_does_not_contain_is_refused(bundle: Bundle) -> None:
    router = PROFILE + "network: kube-router\n"

    def prepare(text: str, image: str = "") -> None:
        profile = yaml_text.parse(text, Profile, "mine.yaml")
        present = f"image\t{image} sha256:ab\n" if image else ""
        machines = {node.name: facts.parse(changed() + present) for node in profile.nodes}
        flow.desired_state(profile, machines, Software(profile, bundle), lambda line: None)

    with pytest.raises(
        InputError, match=r"kube-router needs the image \S+, which the bundle does not"
    ) as error:
        prepare(router)
    assert error.value.remedy == (
        "with this bundle: host, flannel-vxlan, flannel-hostgw, flannel-wireguard, macvlan;"
        " or software: packages, where the machines reach registries"
    )
    prepare(router.replace("software: bundle", "software: packages"))
    # An image that the bundle does not contain is accepted if all machines have it.
    (image,) = network_install.render(yaml_text.parse(router, Profile, "mine.yaml")).images
    prepare(router, image)


def test_packages_come_from_the_named_bundle_or_are_fetched_here(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = desired(bundle).profile
    machines = {"pi1": facts.parse(changed(containerd="", **PI))}
    files = ("Packages", "runc_1_arm64.deb")

    def from_source(**source: str) -> Profile:
        return profile.model_copy(update={"software": profile.software.model_copy(update=source)})

    def script(profile: Profile, software: Software) -> str:
        action = install_containerd(profile, machines, software)
        assert {upload.target for upload in action.uploads} <= {f"{PACKAGES}/{name}" for name in files}
        assert bool(action.uploads) == ("apt-get update" not in action.script)
        return action.script if action.uploads else ""

    created = [Item(("package", "index")[name == "Packages"], name, "1", "arm64", f"packages/bookworm/arm64/{name}", "ab" * 32, 1)
               for name in files]  # fmt: skip
    named, unnamed = from_source(source="bundle", bundle="/media/lab"), from_source(source="bundle")
    full = replace(bundle, items=(*bundle.items, *created))
    assert "file:/var/cache/k8sdds-packages ./" in script(named, Software(named, full))
    with pytest.raises(PrerequisiteError, match="no packages of bookworm for arm64"):
        script(named, Software(named, bundle))
    for name in files:
        (tmp_path / name).write_text(name)
    assert script(unnamed, Software(unnamed, bundle, {("arm64", "bookworm"): tmp_path}))
    # Nodes of a distribution whose packages cannot be fetched here use their own sources, with a note.
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    notes: list[str] = []
    result = with_packages(Software(unnamed, bundle), [facts.parse("machine\taarch64\n")], notes.append)
    assert result.fetched == {} and "from their own sources" in notes[0] and not script(unnamed, result)
    # Nothing is fetched for nodes that have containerd.
    has = facts.parse(changed(containerd="1.7.24", **PI))
    assert with_packages(Software(unnamed, bundle), [has], notes.append).fetched == {} and len(notes) == 1


def test_destroy_changes_only_machines_of_its_cluster(bundle: Bundle) -> None:
    state = desired(bundle)
    markers = {"pi1": "mine", "pi2": "other"}
    machines = {
        name: replace(machine, values={**machine.values, "marker": markers.get(name, "")})
        for name, machine in state.facts.items()
    }
    actions = destroy.plan(state.profile, flow.MachineSurvey(machines), purge=False)
    assert [(a.node, a.phase) for a in actions] == [("pi1", "stop"), ("pi1", "restore")]
    assert "apt-get purge" not in actions[1].script
    # A machine without a cluster loses nothing but the changes of `status --fix`.
    fixed = {**machines["master"].lists, "flag": ("fixed",)}
    survey = flow.MachineSurvey({**machines, "master": replace(machines["master"], lists=fixed)})
    undo, *others = destroy.plan(state.profile, survey, purge=False)
    assert (undo.node, undo.phase) == ("master", "restore") and others == actions
    assert "/etc/k8sdds/saved" in undo.script and "kubeadm" not in undo.script and "KUBE-" not in undo.script
    purged = destroy.plan(state.profile, flow.MachineSurvey(machines), purge=True)
    assert "apt-get purge" in purged[1].script
    lost = {"pi2": PrerequisiteError("pi2: cannot be reached")}
    with pytest.raises(PrerequisiteError, match="nothing was changed"):
        destroy.plan(state.profile, flow.MachineSurvey(machines, lost), purge=False)
