"""Destroy a cluster: stop its processes, remove the leftovers of its network, and restore the machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from k8sdds import nodes
from k8sdds.deploy import local_nodes, node_link_scripts, profiles, record, running_campaigns, tuning
from k8sdds.deploy.actions import CACHE_FOLDER, IMAGES_BEFORE, STATE, Action
from k8sdds.deploy.deploy import MachineSurvey, survey
from k8sdds.deploy.network_switch.footprint import remove_leftovers
from k8sdds.deploy.phases.kubeadm import CRI_SOCKET
from k8sdds.deploy.runner import Observer, Runner
from k8sdds.model.profile import Profile
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections

STOP, RESTORE = "stop", "restore"

# Only the content of folders is deleted: they may be mount points, or older than the cluster.
_STOP = f"""\
if [ -e /sys/class/net/kube-ipvs0 ]; then
  # Only netlink removes virtual servers of IPVS, so kube-proxy does it while it runs.
  ctr --namespace k8s.io containers ls -q 'labels."io.kubernetes.container.name"==kube-proxy' | while read -r id; do
    ctr --namespace k8s.io tasks exec --exec-id k8sdds-cleanup $id kube-proxy --cleanup </dev/null >/dev/null 2>&1 || :
  done
fi
if command -v kubeadm >/dev/null; then kubeadm reset --force --cri-socket {CRI_SOCKET} >/dev/null 2>&1 || :; fi
if systemctl cat kubelet >/dev/null 2>&1; then systemctl disable --now kubelet >/dev/null 2>&1; fi
if ctr version >/dev/null 2>&1; then
  all() {{ ctr --namespace k8s.io "$@"; }}
  for id in $(all tasks ls -q); do all tasks kill -s KILL -a $id || :; done
  for second in 1 2 3 4 5; do [ -z "$(all tasks ls -q)" ] && break; sleep 1; done
  for id in $(all tasks ls -q); do all tasks rm -f $id >/dev/null || :; done
  for id in $(all containers ls -q); do all containers rm $id || :; done
fi
# The kubelet requested these cgroups of pods from systemd.
systemctl stop kubepods.slice 2>/dev/null || :
grep -o ' /var/lib/kubelet/[^ ]*' /proc/self/mountinfo | sort -ru | while read -r point; do
  umount $point || :
done
for folder in /etc/kubernetes /var/lib/kubelet /var/lib/etcd /etc/cni/net.d /var/lib/cni /var/log/pods \\
  /var/log/containers; do
  [ ! -d $folder ] || find $folder -mindepth 1 -delete
  rmdir -p --ignore-fail-on-non-empty $folder 2>/dev/null || :
done
# Folders that the kubelet and containerd create if they are missing.
rmdir /run/netns 2>/dev/null || :
rmdir -p --ignore-fail-on-non-empty /usr/libexec/kubernetes/kubelet-plugins/volume/exec 2>/dev/null || :
rmdir --ignore-fail-on-non-empty /usr/lib/modules 2>/dev/null || :
rm -rf {CACHE_FOLDER}
"""

# Deletes the rules of kube-proxy and the kubelet, which kubeadm reset keeps.
_RULES = """\
for family in ip ip6; do nft delete table $family kube-proxy 2>/dev/null || :; done
for variant in iptables-nft iptables-legacy ip6tables-nft ip6tables-legacy; do
  command -v $variant-save >/dev/null || continue
  $variant-save 2>/dev/null | grep -q KUBE- || continue
  $variant-save 2>/dev/null | grep -v KUBE- | $variant-restore
done
# iptables creates its tables when a rule is first queried: delete those that are empty.
empty='^(table .*|chain (INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING) [{]|type .*; policy accept;|[}]|#.*|)$'
if command -v nft >/dev/null; then
  nft list tables | while read -r word family name; do
    case "$family $name" in
      "ip filter"|"ip nat"|"ip mangle"|"ip raw"|"ip6 filter"|"ip6 nat"|"ip6 mangle"|"ip6 raw") ;;
      *) continue ;;
    esac
    nft list table $family $name | tr -d '\t' | grep -qvE "$empty" || nft delete table $family $name || :
  done
fi
"""

# Runs after leftovers of networks are removed, since that may need a program from an image.
_RESTORE = f"""\
if [ -f {IMAGES_BEFORE} ] && ctr version >/dev/null 2>&1; then
  ctr --namespace k8s.io images ls -q | grep -vxF -f {IMAGES_BEFORE} | while read -r image; do
    ctr --namespace k8s.io images rm $image >/dev/null 2>&1 || :
  done
fi
[ ! -f {STATE}/sysctls ] || while IFS=' =' read -r key value; do
  sysctl -qw "$key=$value" 2>/dev/null || :
done <{STATE}/sysctls
if [ -d {STATE}/saved ]; then cp -a {STATE}/saved/. /; fi
if [ -f {STATE}/made ]; then
  # In reverse order: the content of a folder before the folder.
  sort -r {STATE}/made | while read -r path; do
    if [ -d "$path" ] && [ ! -L "$path" ]; then rmdir "$path" 2>/dev/null || :; else rm -f "$path"; fi
  done
fi
systemctl daemon-reload
"""
_CONTAINERD = f"""\
if [ -f {STATE}/enabled ]; then systemctl disable --now containerd >/dev/null 2>&1
elif systemctl is-active containerd >/dev/null; then systemctl restart containerd; fi
"""
_PURGE = f"""\
if [ -s {STATE}/packages ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-mark unhold kubeadm kubelet kubectl >/dev/null 2>&1 || :
  sort -u {STATE}/packages | xargs apt-get purge -q=2 -y >/dev/null
fi
"""


@dataclass(frozen=True)
class Options:
    """Options of `k8sdds destroy`."""

    purge: bool = False
    """Whether to remove packages that deploy installed, and the logs on this machine."""
    accept_new_host_keys: bool = False
    concurrency: int = 20
    dry_run: bool = False
    """Whether to change nothing, and only return what would be done."""
    force: bool = False
    """Whether to destroy the cluster although a campaign is running on it."""


@dataclass(frozen=True)
class Destroyed:
    """Result of a destroy."""

    changed: bool
    """False: there was nothing to destroy."""
    local_nodes: Sequence[str] = ()
    """Names of the deleted local nodes."""
    actions: Sequence[Action] = ()
    """The changes of other machines."""


def destroy(
    profile: Profile,
    options: Options,
    confirm: Callable[[str], None],
    progress: Callable[[Sequence[Action]], AbstractContextManager[Observer]],
    note: Callable[[str], None],
) -> Destroyed:
    """Destroy the cluster of a profile and delete its record; delete local nodes, restore other machines.

    `confirm` asks the user, and raises if the answer is no, or cannot be given; `progress` shows that of a plan.

    Raises:
        PrerequisiteError: A campaign is running on the cluster, a machine cannot be reached or changed, or leftovers of
            the network remain.
    """
    if profile.provider == "local":
        return _delete_local_nodes(profile, options, confirm, note)
    targets = profiles.targets(profile)
    with (
        record.locked(profile.name),
        Connections(targets, options.accept_new_host_keys, options.concurrency) as connections,
    ):
        machines = survey(profile, connections)
        actions = plan(profile, machines, options.purge)
        if options.dry_run:
            return Destroyed(bool(actions), actions=actions)
        if actions:
            control_plane = connections.hosts[profile.control_plane.name]
            names = ", ".join(dict.fromkeys(action.node for action in actions))
            running_campaigns.ask(
                partial(running_campaigns.refuse, control_plane, options.force), note,
                lambda: confirm(f"Destroy cluster {profile.name} on these machines: {names}?"),
            )  # fmt: skip
            with progress(actions) as observer:
                apply_plan(profile, machines, actions, connections, observer)
    record.delete(profile.name, keep_logs=not options.purge)
    return Destroyed(bool(actions), actions=actions)


def _delete_local_nodes(
    profile: Profile, options: Options, confirm: Callable[[str], None], note: Callable[[str], None]
) -> Destroyed:
    names = list(local_nodes.existing(profile))
    if not names and record.read(profile.name) is None:
        return Destroyed(False)
    if options.dry_run:
        return Destroyed(True, names)
    running_campaigns.ask(
        partial(running_campaigns.refuse_on_local_nodes, profile, options.force), note,
        lambda: confirm(f"Delete the local nodes {', '.join(names)} and all their data?"),
    )  # fmt: skip
    with record.locked(profile.name):
        nodes.down(profile.name)
    record.delete(profile.name)
    return Destroyed(True, names)


def plan(profile: Profile, machines: MachineSurvey, purge: bool) -> list[Action]:
    """Return the actions that destroy the cluster; with `purge`, they remove packages that deploy installed.

    A machine without a cluster, on which `status --fix` made changes, is only restored.

    Raises:
        PrerequisiteError: A machine cannot be reached.
    """
    if machines.failures:
        lines = [str(error) for error in machines.failures.values()]
        raise PrerequisiteError(
            "\n".join(["not all machines can be reached, so nothing was changed:", *lines])
        )
    actions = []
    end = (_PURGE if purge else "") + f"rm -rf {STATE}\n"
    for node in profile.nodes:
        facts = machines.facts[node.name]
        marker = facts.values.get("marker")
        if not marker and "fixed" in facts.all("flag"):
            title = "undo the fixes of `status --fix`"
            actions.append(Action(node.name, RESTORE, title, _RESTORE + end, timeout_s=600))
        if marker != profile.name:
            continue
        undo = tuning.undo_script(tuning.EXPERIMENT_FOLDER) + tuning.undo_script()
        restore = node_link_scripts.restore() + undo + _RULES + _RESTORE + _CONTAINERD + end
        actions += [
            Action(node.name, STOP, "stop everything that runs in the cluster", _STOP, timeout_s=300),
            Action(
                node.name, RESTORE, "restore the state before the cluster", restore,
                needs=tuple((other.name, STOP) for other in profile.nodes), timeout_s=600,
            ),
        ]  # fmt: skip
    return actions


def apply_plan(
    profile: Profile,
    machines: MachineSurvey,
    actions: Sequence[Action],
    connections: Connections,
    observer: Observer,
) -> None:
    """Apply a plan. Between its two phases, remove what the network left on the nodes.

    Raises:
        K8sddsError: The first error of an action.
        PrerequisiteError: Leftovers of the network remain.
    """
    runner = Runner(connections, record.logs(profile.name), observer)
    runner.apply([action for action in actions if action.phase == STOP])
    names = [action.node for action in actions if action.phase == STOP]
    # The fact is `eth0 10.88.0.11/24`.
    entries = [entry for facts in machines.facts.values() for entry in facts.all("address")]
    addresses = [entry.split()[1].partition("/")[0] for entry in entries]
    pods = profile.kubernetes.pod_cidrs
    cleanups = connections.all(lambda host: remove_leftovers(host, addresses, pods), names)
    runner.apply([action for action in actions if action.phase != STOP])
    remaining = [
        f"{name}: {leftover}" for name, cleanup in cleanups.items() for leftover in cleanup.remaining
    ]
    if remaining:
        raise PrerequisiteError(
            "\n".join(["the cluster was destroyed, but leftovers of its network remain:", *remaining]),
            "remove them by hand, or reboot that machine",
        )
