"""Plans from recorded facts: what is done on which machine, also where hardware and packages are not here."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.bundle import Bundle, Item, oci
from k8sdds.deploy import boot_command_line, destroy, facts, network_install, preflight
from k8sdds.deploy import deploy as flow
from k8sdds.deploy.actions import Action
from k8sdds.deploy.apply import hidden
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts import DATA, Facts
from k8sdds.deploy.facts.cluster_state import cluster_state
from k8sdds.deploy.phases import control_plane, runtime
from k8sdds.deploy.plan import plan, shown
from k8sdds.deploy.software import PACKAGES, Software, with_packages
from k8sdds.kubernetes import apply as kube
from k8sdds.model.profile import Profile
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError, PrerequisiteError
from tests.unit.test_preflight import PI, changed

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
    """A bundle's index, as `bundle create` writes it; the files themselves are not needed for a plan."""
    folder = tmp_path_factory.mktemp("bundle")
    items = []
    for arch in ("amd64", "arm64"):
        sha = hashlib.sha256(arch.encode()).hexdigest()
        items.append(
            {"kind": "binary", "name": "kubernetes", "version": "1.36.3", "arch": arch, "sha256": sha,
             "path": f"bin/{arch}/kubernetes", "size_bytes": 155861118, "target": "/usr/local/bin/kubernetes",
             "mode": "0755", "links": ["/usr/local/bin/kubeadm", "/usr/local/bin/kubelet"]}
        )  # fmt: skip
        for name in IMAGES:
            sha = hashlib.sha256((arch + name).encode()).hexdigest()
            items.append(
                {"kind": "image", "name": name, "version": "1", "arch": arch, "sha256": sha,
                 "path": f"oci/blobs/sha256/{sha}", "size_bytes": 1}
            )  # fmt: skip
    index = {"format": 1, "name": "kubernetes-1.36.3", "kubernetes": "1.36.3", "toolchain": "go1.26.6"}
    (folder / "bundle.json").write_text(json.dumps({**index, "arches": ["amd64", "arm64"], "items": items}))
    return Bundle.open(folder)


def wanted(
    bundle: Bundle, text: str = PROFILE, texts: dict[str, str] | None = None, password: str = ""
) -> DesiredState:
    """What to plan from: an x86 control plane and Raspberry Pis, unless `texts` says what is there."""
    profile = yaml_text.parse(text, Profile, "mine.yaml")
    texts = texts or bare(profile)
    seen = {name: facts.parse(one) for name, one in texts.items()}
    return DesiredState(profile, seen, Software(profile, bundle), network_install.install(profile, password or None))


def bare(profile: Profile) -> dict[str, str]:
    """The recorded probe as machines without anything would print it."""
    return {
        node.name: changed(
            hostname=node.name,
            containerd="1.7.24",
            address=f"eth0 192.0.2.{10 + number}/24",
            **({} if node.is_control_plane else PI),
        )
        for number, node in enumerate(profile.nodes)
    }


def phases(actions: Iterable[Action], node: str) -> list[str]:
    return list(dict.fromkeys(action.phase for action in actions if action.node == node))


def after(state: DesiredState, actions: Iterable[Action], texts: dict[str, str] | None = None) -> dict[str, str]:
    """What machines would print when these actions were done: read from the actions' own scripts."""
    texts, head = texts or bare(state.profile), state.head
    made = dict(texts)
    stamped = kube.stamped(state.network.manifests, state.network.name)

    def add(node: str, line: str) -> None:
        made[node] += line + "\n"

    for action in actions:
        if action.phase == "claim":
            add(action.node, "marker\tmine")
        for path, mark, text in re.findall(
            r"^put (\S+) \d+ <<'(\w+)'\n(.*?)^\2$", action.script, re.M | re.S
        ):
            assert mark
            add(action.node, f"file\t{path} {hashlib.sha256(text.encode()).hexdigest()}")
        for key, value in re.findall(r"^sysctl -qw (\S+)=(\S+)$", action.script, re.M):
            add(action.node, f"sysctl\t{key} {value}")
        for upload in action.uploads:
            add(action.node, f"file\t{upload.target} {upload.sha256}")
        for name, sha in action.images.digests if action.images else ():
            add(action.node, f"image\t{name} sha256:{sha}")
        if "systemctl restart containerd" in action.script:
            add(action.node, "unit\tcontainerd active")
        if action.script.endswith("/initialised\n"):
            add(action.node, f"flag\tinitialised\nleftover\t/etc/kubernetes/admin.conf\nleftover\t{DATA}\nkube.api\tready")
        if action.script.endswith("/joined\n"):
            add(action.node, "flag\tjoined\nleftover\t/etc/kubernetes/kubelet.conf")
            if f"kube.node\t{action.node} " not in made[head]:
                add(head, f"kube.node\t{action.node} True  {{}}")
        applied = [one for one in stamped if one["kind"] == "Secret"] if action.private else []
        if action.node != head:
            applied = []
        for text in re.findall(r"<<'END_OF_OBJECTS'\n(.*?)^END_OF_OBJECTS$", action.script, re.M | re.S):
            applied += json.loads(text)["items"]
        for one in applied:
            meta = one["metadata"]
            if one["kind"] == "Pod":
                continue  # gone when the smoke test ends
            network = meta["labels"].get(versions.NETWORK_LABEL, "")
            sha = meta["annotations"][versions.SHA256_ANNOTATION]
            add(head, f"kube.object\t{kube.identity(one)} {sha} 1/1 {network} ")
        for proven in re.findall(rf"--overwrite {re.escape(versions.PROVEN_ANNOTATION)}=(\w+)", action.script):
            space = re.findall(rf"^kube\.object\tNamespace//{versions.SYSTEM_NAMESPACE} (\w+) .*$", made[head], re.M)[-1]
            add(head, f"kube.object\tNamespace//{versions.SYSTEM_NAMESPACE} {space} /  {proven}")
        for line in re.findall(r"^kubectl patch node .* >/dev/null$", action.script, re.M):
            node, text = (shlex.split(line)[place] for place in (3, 7))
            meta = json.loads(text)["metadata"]
            labels = cluster_state(facts.parse(made[head])).labels.get(node, {}) | meta["labels"]
            kept = json.dumps({key: value for key, value in labels.items() if value is not None})
            add(head, f"kube.node\t{node} True {meta['annotations'][versions.NODE_LABELS_ANNOTATION] or ''} {kept}")
    if "flag\tinitialised" in made[head] and f"kube.node\t{head} " not in made[head]:
        add(head, f"kube.node\t{head} True  {{}}")
    return made


def test_a_bare_lab_from_a_bundle(bundle: Bundle) -> None:
    actions = plan(wanted(bundle))
    assert phases(actions, "master") == [
        "claim", "runtime", "kubernetes packages", "control plane", "network", "metrics server", "images",
        "join", "labels", "smoke test",
    ]  # fmt: skip
    assert phases(actions, "pi1") == ["claim", "runtime", "kubernetes packages", "images", "join"]
    # Each machine gets the programs of its own architecture, workers nothing of a control plane.
    by_node = {name: [a for a in actions if a.node == name] for name in NODES}
    (upload,) = [one for action in by_node["pi1"] for one in action.uploads]
    assert upload.sha256 == hashlib.sha256(b"arm64").hexdigest() and not upload.shared
    names = {
        node: {name for action in by_node[node] if action.images for name, _ in action.images.digests}
        for node in NODES
    }
    assert names["master"] == set(IMAGES)
    assert names["pi1"] == set(IMAGES) - {"registry.k8s.io/kube-apiserver:v1.36.3"}
    # Nobody joins before there is something to join, and the proof comes when all are there.
    (join,) = [a for a in by_node["pi1"] if a.phase == "join"]
    assert join.needs == (("master", "control plane"),)
    (smoke,) = [a for a in actions if a.phase == "smoke test"]
    assert {("pi1", "join"), ("pi2", "join"), ("pi1", "images")} <= set(smoke.needs)
    assert "smoke-pi2" in smoke.script and "239.255.0.1:7000 --count" not in smoke.script


def test_multicast_is_proven_where_it_is_carried(bundle: Bundle) -> None:
    (smoke,) = [a for a in plan(wanted(bundle, PROFILE + "network: weavenet\n")) if a.phase == "smoke test"]
    assert "239.255.0.1:7000 --count" in smoke.script


def test_done_once_there_is_nothing_left_to_do(bundle: Bundle) -> None:
    state = wanted(bundle)
    texts = after(state, plan(state))
    assert plan(wanted(bundle, texts=texts)) == []


@pytest.mark.parametrize("seed", range(6))
def test_an_interrupted_deploy_is_finished_and_nothing_is_done_twice(bundle: Bundle, seed: int) -> None:
    chance = random.Random(seed)
    state = wanted(bundle)
    actions = plan(state)
    done: list[Action] = []
    for name in NODES:
        own = [action for action in actions if action.node == name]
        done += own[: chance.randint(0, len(own))]
    # What other nodes had to have done before had been done.
    for action in actions:
        left = {(one.node, one.phase) for one in actions if one not in done}
        if action in done and left & set(action.needs):
            own = [one for one in actions if one.node == action.node]
            done = [one for one in done if one not in own[own.index(action) :]]
    texts = after(state, done)
    again = plan(wanted(bundle, texts=texts))
    planned = {(a.node, a.phase) for a in again}
    left = [action for action in actions if action not in done and "wait until" not in action.title]
    assert planned >= {(action.node, action.phase) for action in left}
    # What waits or proves is done again; what changes a machine is not.
    changes = {(a.node, a.title) for a in done if a.phase != "smoke test" and "wait until" not in a.title}
    assert not changes & {(a.node, a.title) for a in again}
    assert plan(wanted(bundle, texts=after(state, again, texts))) == []


def test_what_differs_is_planned_and_nothing_else(bundle: Bundle) -> None:
    state = wanted(bundle)
    texts = after(state, plan(state))
    texts["pi2"] = texts["pi2"].replace("unit\tcontainerd active", "unit\tcontainerd failed")
    found = [(a.node, a.phase) for a in plan(wanted(bundle, texts=texts))]
    assert found == [("pi2", "runtime"), ("master", "smoke test")]
    resolution = PROFILE + "metrics_server: {resolution_s: 30}\n"
    texts = after(state, plan(state))
    found = [(a.node, a.phase) for a in plan(wanted(bundle, resolution, texts))]
    assert found == [("master", "metrics server"), ("master", "smoke test"), ("master", "metrics server")]


def test_a_control_plane_that_is_made_anew_knows_nobody(bundle: Bundle) -> None:
    """Its card was exchanged, or its data is gone: the workers still say that they have joined."""
    state = wanted(bundle)
    texts = after(state, plan(state))
    for lost in (
        {"master": bare(state.profile)["master"]},
        {"master": texts["master"].replace(f"leftover\t{DATA}\n", "").replace("kube.api\tready\n", "")},
        # Its processes still run, and answer.
        {"master": texts["master"].replace(f"leftover\t{DATA}\n", "")},
    ):
        found = plan(wanted(bundle, texts=texts | lost))
        assert {("master", "control plane"), ("pi1", "join"), ("pi2", "join")} <= {
            (action.node, action.phase) for action in found
        }
        assert {"network", "labels"} <= set(phases(found, "master"))
        (join,) = [action for action in found if (action.node, action.phase) == ("pi1", "join")]
        assert "kubeadm reset" in join.script and "delete node" not in join.private[0].script


@pytest.mark.parametrize("up", [True, False])
def test_a_worker_that_was_installed_anew_takes_its_own_name_back(bundle: Bundle, up: bool) -> None:
    state = wanted(bundle)
    texts = after(state, plan(state))
    texts["pi1"] = bare(state.profile)["pi1"]
    if not up:
        texts["master"] = texts["master"].replace("kube.api\tready\n", "")
    joins = [action for action in plan(wanted(bundle, texts=texts)) if action.phase == "join" and action.private]
    assert [action.node for action in joins] == ["pi1"]
    assert "kubectl delete node pi1 --ignore-not-found" in joins[0].private[0].script
    (labels,) = [action for action in plan(wanted(bundle, texts=texts)) if action.phase == "labels"]
    assert "k8sdds.io/board" in labels.script


def test_packages_of_the_project_on_a_raspberry_pi(bundle: Bundle) -> None:
    text = PROFILE.replace("software: bundle", "software: packages")
    actions = plan(wanted(bundle, text))
    (install,) = [a for a in actions if a.node == "pi1" and a.phase == "kubernetes packages"]
    assert "/core:/stable:/v1.36/deb/" in install.script and "kubelet='1.36.3-*'" in install.script
    assert "apt-mark hold kubeadm kubelet kubectl" in install.script
    assert not any(a.uploads for a in actions)
    # Kubernetes' images come from its registry; ours are in none.
    names = {name for a in actions if a.images for name, _ in a.images.digests}
    assert names == {"k8sdds.local/tools:1"}


def test_a_machine_without_containerd_gets_it(bundle: Bundle) -> None:
    profile = yaml_text.parse(PROFILE.replace("bundle", "packages"), Profile, "mine.yaml")
    texts = bare(profile)
    texts["pi1"] = re.sub(r"^containerd\t.*\n", "", texts["pi1"], flags=re.M)
    titles = [
        a.title for a in plan(wanted(bundle, PROFILE.replace("bundle", "packages"), texts)) if a.node == "pi1"
    ]
    assert "install containerd" in titles and titles.index("install containerd") < titles.index(
        "configure containerd"
    )


def test_kubeadm_is_told_what_the_machines_are(bundle: Bundle) -> None:
    state = wanted(bundle)
    init, whole, kubelet, proxy = (json.loads(one) for one in control_plane.documents(state).split("---\n"))
    assert init["localAPIEndpoint"]["advertiseAddress"] == "192.0.2.10"
    assert {"name": "node-ip", "value": "192.0.2.10"} in init["nodeRegistration"]["kubeletExtraArgs"]
    # The recorded machine has cgroup v1, which this Kubernetes takes only when told to.
    assert init["nodeRegistration"]["ignorePreflightErrors"] == ["SystemVerification"]
    assert kubelet["failCgroupV1"] is False and kubelet["imageGCHighThresholdPercent"] == 100
    assert whole["kubernetesVersion"] == "v1.36.3" and "127.0.0.1" in whole["apiServer"]["certSANs"]
    fixed = {name: facts.parse(changed(hostname=name, conntrack="fixed")) for name in NODES}
    confined = control_plane.documents(replace(state, facts={**state.facts, **fixed}, network=state.network))
    assert json.loads(confined.split("---\n")[3])["conntrack"] == {"maxPerCore": 0}
    assert "conntrack" not in proxy and "taints" not in init["nodeRegistration"]
    both = wanted(bundle, PROFILE.replace("roles: [control-plane]", "roles: [control-plane, worker]"))
    assert control_plane.registration(both, both.profile.control_plane)["taints"] == []
    # Before 1.31 kubeadm wanted arguments as a mapping.
    old = wanted(bundle, PROFILE.replace("software: bundle", "kubernetes: {version: 1.26.15}"))
    init = json.loads(control_plane.documents(old).split("---\n")[0])
    assert init["apiVersion"].endswith("v1beta3")
    assert init["nodeRegistration"]["kubeletExtraArgs"] == {"node-ip": "192.0.2.10"}


def test_the_runtime_fits_what_the_machine_may_do(bundle: Bundle) -> None:
    state = wanted(bundle)

    def config(capabilities: str) -> str:
        text = changed(capabilities=capabilities, containerd="1.7.24")
        one = DesiredState(state.profile, {"pi1": facts.parse(text)}, state.software, state.network)
        return next(
            a.script
            for a in runtime.plan(one, state.profile.node("pi1"))
            if a.title == "configure containerd"
        )

    assert "restrict_oom_score_adj = true" in config("000001fffeffffff")
    assert "restrict_oom_score_adj" not in config("000001ffffffffff")


def test_no_plan_shows_a_secret(bundle: Bundle, tmp_path: Path) -> None:
    import base64

    secret = "correct-horse-battery-staple-" * 4
    (tmp_path / "psk").write_text(secret)
    text = PROFILE + f"network: {{name: weavenet-encrypt, password_file: {tmp_path / 'psk'}}}\n"
    state = wanted(bundle, text, password=secret)
    actions = plan(state)
    told = json.dumps([shown(action) for action in actions])
    encoded = base64.b64encode(secret.encode()).decode()
    assert secret not in told and encoded not in told and encoded not in repr(actions)
    (apply,) = [a for a in actions if a.phase == "network"]
    assert [one.path for one in apply.private] == ["/run/k8sdds-deploy/objects.json"]


def test_labels_and_some_nodes_only(bundle: Bundle) -> None:
    state = wanted(bundle)
    (labels,) = [a for a in plan(state) if a.phase == "labels"]
    assert (
        "kubectl patch node pi1 --type merge" in labels.script and '"k8sdds.io/board": "pi4"' in labels.script
    )
    assert {a.node for a in plan(state, ["pi1"])} == {"pi1"}
    with pytest.raises(InputError, match="--limit leaves out master"):
        flow.planned(state, ["pi1"])


def test_labels_that_a_profile_drops_are_taken_off_and_those_of_others_stay(bundle: Bundle) -> None:
    state = wanted(bundle)
    texts = after(state, plan(state))
    mine = "master True rack "
    assert mine in texts["master"]
    texts["master"] = texts["master"].replace(
        mine + '{"rack": "one"}', mine + '{"rack": "one", "zone": "a", "rack2": "two"}'
    )

    def script(labels: str, texts: dict[str, str] = texts) -> str:
        found = plan(wanted(bundle, PROFILE.replace("{rack: one}", labels), texts))
        return "".join(action.script for action in found if action.phase == "labels")

    assert script("{rack: one}") == ""
    # Renamed: the old one goes with the new one's coming; the record follows.
    (line,) = script("{row: one}").splitlines()
    assert json.loads(shlex.split(line)[7])["metadata"] == {
        "labels": {"row": "one", "rack": None}, "annotations": {"k8sdds.io/labels": "row"},
    }  # fmt: skip
    (line,) = script("{}").splitlines()
    assert json.loads(shlex.split(line)[7])["metadata"] == {
        "labels": {"rack": None}, "annotations": {"k8sdds.io/labels": None},
    }  # fmt: skip
    # What somebody else has set to what the profile wants stays theirs, also when the profile drops it.
    assert script("{rack: one, zone: a}") == ""
    # And it is done: nothing is left to do with what was read back.
    other = wanted(bundle, PROFILE.replace("{rack: one}", "{row: one}"), texts)
    done = after(other, [one for one in plan(other) if one.phase == "labels"], texts)
    assert script("{row: one}", done) == "" and '"zone": "a"' in done["master"].splitlines()[-1]


def test_some_nodes_only_while_others_are_down(bundle: Bundle) -> None:
    state = wanted(bundle)
    seen = {**state.facts, "pi1": facts.parse(changed(hostname="pi1", swap_kib="4096", **PI))}
    del seen["pi2"]
    lost = {"pi2": PrerequisiteError("pi2: cannot be reached", "is it on?")}
    whole = flow.MachineSurvey(seen, lost, [], [])
    # Without a limit nothing is left out; with one, what it names must do, and the control plane.
    assert flow.within(state.profile, whole, ()) == (state.profile, whole)
    part, look = flow.within(state.profile, whole, ["master"])
    assert [node.name for node in part.nodes] == ["master"] and not look.failures and "pi1" not in look.facts
    assert any("left out, as --limit allows: pi1: has 4 MiB of swap" in note for note in look.notes)
    assert any("left out, as --limit allows: pi2: cannot be reached" in note for note in look.notes)
    part, look = flow.within(state.profile, whole, ["pi1"])
    assert [node.name for node in part.nodes] == ["master", "pi1"]
    assert any("swap" in problem.what for problem in look.problems)
    headless = flow.MachineSurvey({"pi1": seen["pi1"]}, {"master": PrerequisiteError("master: cannot be reached")}, [], [])
    assert "master" in flow.within(state.profile, headless, ["pi1"])[1].failures


def test_an_address_is_that_of_the_route_or_the_named_interface(bundle: Bundle) -> None:
    text = changed(route="default via 10.0.0.1 dev wlan0") + "address\twlan0 10.0.0.7/24\n"
    state = wanted(bundle)
    one = DesiredState(state.profile, {"pi1": facts.parse(text)}, state.software, state.network)
    assert one.address("pi1") == "10.0.0.7"
    named = wanted(bundle, PROFILE + "network: {name: flannel-vxlan, interface: eth0}\n")
    assert named.address("pi1") == "192.0.2.11"
    lost = DesiredState(state.profile, {"pi1": Facts({"route": "default dev eth7"})}, state.software, state.network)
    with pytest.raises(InputError, match="eth7 has no IPv4 address"):
        lost.address("pi1")


@pytest.mark.parametrize(
    ("line", "new"),
    [
        (
            "console=tty1 rootwait",
            "console=tty1 rootwait cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory",
        ),
        ("a cgroup_disable=memory b", "a b cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory"),
        ("cgroup_enable=memory x", "cgroup_enable=memory x cgroup_enable=cpuset cgroup_memory=1"),
    ],
)
def test_a_raspberry_pis_boot_line(line: str, new: str) -> None:
    assert boot_command_line.line(line) == new and boot_command_line.line(new) == new
    pi = facts.parse(changed(**PI, controllers="cpu", boot_file="/boot/firmware/cmdline.txt", boot_line=line))
    assert boot_command_line.needed(pi) and new in boot_command_line.script(pi)
    assert not boot_command_line.needed(facts.parse(changed(**PI, boot_file="/boot/firmware/cmdline.txt")))


def test_no_machine_is_rebooted_in_vain(bundle: Bundle) -> None:
    off = {**PI, "controllers": "cpu", "boot_file": "/boot/firmware/cmdline.txt", "boot_line": "rootwait"}
    profile = wanted(bundle).profile

    def lines(limit: Iterable[str] = (), **more: str) -> list[str]:
        texts = {"master": changed(), "pi1": changed(**off), "pi2": changed(**off, **more)}
        seen = {name: facts.parse(text + f"resolves\t{name}\n") for name, text in texts.items()}
        return flow.boot_lines(profile, flow.MachineSurvey(seen, {}, preflight.judge(profile, seen), []), list(limit))

    assert lines() == ["pi1", "pi2"]
    with pytest.raises(PrerequisiteError, match="pi2: belongs to the cluster 'other'") as error:
        lines(marker="other")
    assert "memory cgroup" not in str(error.value)
    # A machine that is left out stays as it is, and prevents the deploy.
    with pytest.raises(PrerequisiteError, match="pi2: the memory cgroup is not enabled"):
        lines(["pi1"])
    seen = {name: facts.parse(changed()) for name in ("master", "pi1", "pi2")}
    assert flow.boot_lines(profile, flow.MachineSurvey(seen, {}, [], [])) == []


def test_what_looks_like_a_secret_is_not_logged() -> None:
    said = "kubeadm join --token abcdef.0123456789abcdef\n-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----"
    assert "0123456789abcdef" not in hidden(said) and "AAAA" not in hidden(said)
    assert hidden("client-key-data: QUJD\nfine") == "client-key-data: ******\nfine"


def test_a_cluster_as_its_control_plane_tells_it() -> None:
    text = (
        'kube.api\tready\nkube.node\tone True x,y/z {"a":"b c"}\nkube.node\ttwo Unknown  {}\n'
        "kube.object\tDaemonSet/k8sdds-network/flannel abc 1/2 flannel-vxlan \n"
        "kube.object\tDeployment/kube-system/metrics-server def /1  \n"
        "kube.object\tNamespace//k8sdds-system 123 /  proof\n"
    )
    found = cluster_state(facts.parse(text))
    assert found.ready == {"one": True, "two": False} and found.labels["one"] == {"a": "b c"}
    assert found.own_labels == {"one": {"x", "y/z"}, "two": set()}
    assert found.not_ready == {"DaemonSet/k8sdds-network/flannel", "Deployment/kube-system/metrics-server"}
    assert found.networks == {"flannel-vxlan"} and found.proven == "proof"
    assert not cluster_state(facts.parse("kube.node\tone True  {}\n")).up


def test_packages_come_from_a_bundle_that_the_profile_names(bundle: Bundle) -> None:
    made = [
        Item(kind, name, "1", "arm64", f"packages/bookworm/arm64/{name}", "ab" * 32, 1)
        for kind, name in (("package", "runc_1_arm64.deb"), ("index", "Packages"))
    ]
    with_packages = replace(bundle, items=(*bundle.items, *made))
    profile = wanted(bundle).profile
    software = profile.software.model_copy(update={"source": "bundle", "bundle": "/media/lab"})
    profile = profile.model_copy(update={"software": software})
    seen = {"pi1": facts.parse(changed(containerd="", **PI))}

    def install(from_there: Bundle) -> Action:
        one = DesiredState(profile, seen, Software(profile, from_there), network_install.install(profile))
        return next(a for a in runtime.plan(one, profile.node("pi1")) if a.title == "install containerd")

    action = install(with_packages)
    assert [one.target.rpartition("/")[2] for one in action.uploads] == ["runc_1_arm64.deb", "Packages"]
    assert "file:/var/cache/k8sdds-packages ./" in action.script
    assert "apt-get update" not in action.script
    with pytest.raises(PrerequisiteError, match="no packages of bookworm for arm64"):
        install(bundle)


def with_flannel(bundle: Bundle, folder: Path, *programs: str) -> Bundle:
    """The bundle, its image of flannel one with these programs."""
    layout = oci.Layout(folder / "oci")
    layer = layout.layer({program: b"" for program in programs})
    made = layout.image("flannel", "amd64", ["/opt/bin/flanneld"], [layer])
    items = [replace(one, sha256=made) if "flannel" in one.name else one for one in bundle.items]
    return replace(bundle, folder=folder, items=tuple(items))


def test_a_network_that_the_bundle_does_not_have_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "psk").write_text("0123456789abcdef" * 6)
    (tmp_path / "psk").chmod(0o600)
    secret = f"network: {{name: flannel-ipsec, password_file: {tmp_path / 'psk'}}}\n"

    def refused(text: str, from_there: Bundle, image: str = "") -> None:
        profile = yaml_text.parse(text, Profile, "mine.yaml")
        texts = {
            node.name: changed() + (f"image\t{image} sha256:ab\n" if image else "") for node in profile.nodes
        }
        seen = {name: facts.parse(one) for name, one in texts.items()}
        flow.wanted(profile, seen, Software(profile, from_there), lambda line: None)

    plain = with_flannel(bundle, tmp_path / "plain", "/opt/bin/flanneld", "/etc/charon/conf")
    with pytest.raises(InputError, match="flannel-ipsec needs charon, which the bundle's image") as error:
        refused(PROFILE + secret, plain)
    assert error.value.remedy == (
        "with this bundle: host, flannel-vxlan, flannel-hostgw, flannel-wireguard;"
        " or software: packages, where the machines reach registries"
    )
    refused(PROFILE.replace("software: bundle", "software: packages") + secret, plain)
    refused(
        PROFILE + secret,
        with_flannel(bundle, tmp_path / "full", "/opt/bin/flanneld", "/usr/lib/ipsec/charon"),
    )
    refused(PROFILE, plain)
    # An image that it lacks, unless all machines have it already.
    router = PROFILE + "network: kube-router\n"
    with pytest.raises(InputError, match=r"kube-router needs the image \S+, which the bundle does not"):
        refused(router, plain)
    (image,) = network_install.install(yaml_text.parse(router, Profile, "mine.yaml")).images
    refused(router, plain, image)


def test_packages_are_fetched_here_where_no_bundle_is_named(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Packages", "runc_1_arm64.deb"):
        (tmp_path / name).write_text(name)
    profile = wanted(bundle).profile
    profile = profile.model_copy(update={"software": profile.software.model_copy(update={"source": "bundle"})})
    seen = {"pi1": facts.parse(changed(containerd="", **PI))}

    def install(found: Software) -> Action:
        one = DesiredState(profile, seen, found, network_install.install(profile))
        return next(a for a in runtime.plan(one, profile.node("pi1")) if a.title == "install containerd")

    action = install(Software(profile, bundle, {("arm64", "bookworm"): tmp_path}))
    assert [one.target for one in action.uploads] == [f"{PACKAGES}/Packages", f"{PACKAGES}/runc_1_arm64.deb"]
    assert "apt-get update" not in action.script
    # A distribution that this machine has no packages of: its nodes have their own sources, which is said.
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    said: list[str] = []
    unknown = {"pi1": facts.parse("machine\taarch64\n")}
    found = with_packages(Software(profile, bundle), unknown.values(), said.append)
    assert found.fetched == {} and "from their own sources" in said[0]
    assert "apt-get update" in install(found).script
    # Nothing is fetched for nodes that have containerd, or from a bundle that is named.
    has = facts.parse(changed(containerd="1.7.24", **PI))
    assert with_packages(Software(profile, bundle), [has], said.append).fetched == {} and len(said) == 1


def test_only_machines_of_this_cluster_are_given_back(bundle: Bundle) -> None:
    state = wanted(bundle)
    texts = bare(state.profile)
    texts["pi1"] += "marker\tmine\n"
    texts["pi2"] += "marker\tother\n"
    seen = {name: facts.parse(text) for name, text in texts.items()}
    actions = destroy.plan(state.profile, flow.MachineSurvey(seen, {}, [], []), purge=False)
    assert [(a.node, a.phase) for a in actions] == [("pi1", "stop"), ("pi1", "restore")]
    assert "apt-get purge" not in actions[1].script
    purged = destroy.plan(state.profile, flow.MachineSurvey(seen, {}, [], []), purge=True)
    assert "apt-get purge" in purged[1].script
    lost = {"pi2": PrerequisiteError("pi2: cannot be reached")}
    with pytest.raises(PrerequisiteError, match="nothing was changed"):
        destroy.plan(state.profile, flow.MachineSurvey(seen, lost, [], []), purge=False)
