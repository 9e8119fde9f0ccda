"""What a machine is and what is on it, gathered by one script in one go, as data."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from k8sdds.deploy.actions import HASHES, LOCK
from k8sdds.errors import K8sddsError
from k8sdds.hosts import Connections, Host, HostError

MARKER = "/etc/k8sdds/cluster"
"""File with the name of the profile whose cluster a machine is part of."""

BUSY_S = 600
"""How long what an interrupted deploy began may go on."""
BUSY = 75
"""Exit code of a probe that found a machine at it."""

PORTS = (6443, 2379, 2380, 10250, 10257, 10259)
"""TCP ports of a Kubernetes node: API server, etcd, kubelet, controllers, scheduler."""

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm"}

# Every line is `key<tab>value`. Nothing here changes the machine, but that probing a kernel feature (in a
# network namespace that ends with the probe) loads its module where it is one.
PROBE = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH LC_ALL=C
say() { printf '%s\t%s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
say epoch "$(date +%s.%N)"
say user "$(id -un)"
say machine "$(uname -m)"
say kernel "$(uname -r)"
say hostname "$(uname -n)"
say userland "$(dpkg --print-architecture 2>/dev/null)"
say cpus "$(getconf _NPROCESSORS_ONLN)"
say init "$(cat /proc/1/comm)"
sed -n 's/^\(ID\|ID_LIKE\|VERSION_ID\|VERSION_CODENAME\|PRETTY_NAME\)=/os.\1\t/p' /etc/os-release | tr -d '"'
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  say cgroup 2; controllers=$(cat /sys/fs/cgroup/cgroup.controllers)
else say cgroup 1; controllers=$(awk '$4 == 1 { printf "%s ", $1 }' /proc/cgroups); fi
say controllers "$controllers"
for file in /boot/firmware/cmdline.txt /boot/cmdline.txt; do
  [ -f $file ] && { say boot_file $file; say boot_line "$(head -n 1 $file)"; break; }
done
say model "$(tr -d '\0' 2>/dev/null </proc/device-tree/model)"
awk '$1 == "MemTotal:" { print "memory_kib\t" $2 } $1 == "SwapTotal:" { print "swap_kib\t" $2 }' /proc/meminfo
for folder in /var/lib /usr/local /etc; do
  say free_kib "$folder $(df -kP $folder | awk 'NR == 2 { print $4 }')"
done
has ss && ss -Htln | awk '{ n = split($4, p, ":"); printf "listens\t%s\n", p[n] }' | sort -u
has containerd && say containerd "$(containerd --version | awk '{ print $3 }')"
has systemctl && for unit in containerd kubelet; do
  say unit "$unit $(systemctl is-active $unit 2>/dev/null)"
done
# Each is large and slow to start; from a bundle they are one and the same file, asked once.
asked=
for program in kubeadm kubelet kubectl; do
  file=$(readlink -f "$(command -v $program)") && [ -n "$file" ] || continue
  if [ "$file" != "$asked" ]; then
    case $program in
      kubeadm) version=$(kubeadm version -o short 2>/dev/null) ;;
      kubelet) version=$(kubelet --version 2>/dev/null | awk '{ print $2 }') ;;
      kubectl) version=$(kubectl version --client 2>/dev/null | awk '/Client Version/ { print $3 }') ;;
    esac
    asked=$file
  fi
  say program "$program $version"
done
[ -f /etc/k8sdds/cluster ] && say marker "$(head -n 1 /etc/k8sdds/cluster)"
for flag in initialised joined; do [ -f /etc/k8sdds/$flag ] && say flag $flag; done
for file in /etc/kubernetes/*.conf /etc/kubernetes/manifests/*.yaml /etc/cni/net.d/* /var/lib/etcd/member; do
  [ -e "$file" ] && say leftover "$file"
done
file=/etc/kubernetes/kubelet.conf
[ -f $file ] && say server "$(sed -n 's/^ *server: //p' $file | head -n 1)"
for link in /sys/class/net/*; do say link "${link##*/}"; done
say route "$(ip -4 route show default 2>/dev/null | head -n 1)"
ip -4 -o addr show scope global 2>/dev/null | awk '{ print "address\t" $2 " " $4 }'
say capabilities "$(awk '/^CapBnd/ { print $2 }' /proc/1/status)"
if [ -d /proc/sys/net/bridge ] || modprobe -n br_netfilter 2>/dev/null; then say feature br_netfilter; fi
if grep -qw overlay /proc/filesystems || modprobe -n overlay 2>/dev/null; then say feature overlay; fi
unshare --net sh -c '
  try() {
    if said=$(sh -c "$2" 2>&1); then printf "feature\t%s\n" "$1"
    else printf "lacks\t%s %s\n" "$1" "$(printf %s "$said" | tail -n 1 | tr "\t" " ")"; fi
  }
  try vxlan "ip link add vxlan9 type vxlan id 1 dstport 8472 dev lo"
  try ipip "ip link add ipip9 type ipip local 127.0.0.1 remote 127.0.0.2"
  try wireguard "ip link add wireguard9 type wireguard"
  try bridge "ip link add bridge9 type bridge"
  try esp "ip xfrm state add src 127.0.0.1 dst 127.0.0.2 proto esp spi 1 mode transport \
    aead \"rfc4106(gcm(aes))\" 0x0102030405060708090a0b0c0d0e0f1011121314 128"
  try nftables "nft add table ip probe"
'
if [ -d /sys/module/openvswitch ] || modprobe -n openvswitch 2>/dev/null; then say feature openvswitch
else say lacks "openvswitch no such module"; fi
# Which of the names it is asked for it can resolve.
for name in $NAMES; do getent hosts "$name" >/dev/null 2>&1 && say resolves "$name"; done
for key in $SYSCTLS; do say sysctl "$key $(sysctl -n "$key" 2>/dev/null | tr '\t' ' ')"; done
# What deploy has installed is written down with all that tells an untouched file (inode, size, times), which
# need not be read again.
stat -L --format '%n %i %s %.9Y %.9Z' $FILES 2>/dev/null | awk '
  BEGIN { while ((getline <"HASHES") > 0) { sha = $NF; sub(/ [^ ]*$/, ""); known[$0] = sha } }
  $0 in known { print "file\t" $1 " " known[$0]; next }
  { unread = unread " " $1 }
  # The brackets matter: without them mawk would run what it is to hash.
  END { if (unread) while ((("sha256sum" unread) | getline) > 0) print "file\t" $2 " " $1 }'
# Only where this machine is ours: else it is none of our business which images it has.
if [ -f /etc/k8sdds/cluster ] && has ctr; then
  ctr --namespace k8s.io images ls 2>/dev/null |
    awk 'NR > 1 && $1 ~ /:/ && $1 !~ /^sha256:/ { print "image\t" $1 " " $3 }'
fi
:
""".replace("HASHES", HASHES)

OBJECTS = (
    "namespaces,serviceaccounts,configmaps,secrets,services,daemonsets.apps,deployments.apps,statefulsets.apps,"
    "poddisruptionbudgets.policy,networkpolicies.networking.k8s.io,priorityclasses.scheduling.k8s.io,"
    "clusterroles.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io,"
    "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,apiservices.apiregistration.k8s.io"
)
"""Kinds of objects that k8sdds may have made on a cluster."""

# On the control plane: what the API server knows. Of Secrets the names alone.
CLUSTER_PROBE = r"""
KUBECONFIG=/etc/kubernetes/admin.conf; export KUBECONFIG
if [ -f $KUBECONFIG ] && [ -f /etc/k8sdds/cluster ] && has kubectl; then
  each() { printf '{range .items[*]}%s{"\\t"}' "$1"; shift; printf '{%s} ' "$@"; printf '{"\\n"}{end}'; }
  kubectl get --request-timeout=5s nodes --output jsonpath="$(each kube.node .metadata.name \
    '.status.conditions[?(@.type=="Ready")].status' '.metadata.annotations.k8sdds\.io/labels' \
    .metadata.labels)" 2>/dev/null &
  counts='.status.numberReady}{.status.readyReplicas}/{.status.desiredNumberScheduled}{.spec.replicas'
  kubectl get --request-timeout=5s OBJECTS --all-namespaces --selector app.kubernetes.io/managed-by=k8sdds \
    --output jsonpath="$(each kube.object '.kind}/{.metadata.namespace}/{.metadata.name' \
    '.metadata.annotations.k8sdds\.io/sha256' "$counts" '.metadata.labels.k8sdds\.io/network' \
    '.metadata.annotations.k8sdds\.io/proven')" 2>/dev/null &
  kubectl get --request-timeout=5s --raw /readyz >/dev/null 2>&1 && say kube.api ready
  wait
fi
:
""".replace("OBJECTS", OBJECTS)


@dataclass(frozen=True)
class Facts:
    """One machine, as the probe saw it. Sizes in KiB, as the kernel says them."""

    one: dict[str, str]
    """Facts with one value, by key."""
    many: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Facts with several values, by key."""
    clock_ahead_s: float = 0.0
    """How far its clock is ahead of this machine's, more or less."""
    clock_error_s: float = 0.0
    """How much more or less: half of what the probe took beyond its own time, so of connecting mostly."""

    @property
    def architecture(self) -> str:
        """amd64, arm64, arm, or what uname says of another machine."""
        machine = self.one.get("machine", "")
        return ARCHITECTURES.get(machine, machine)

    @property
    def userland(self) -> str:
        """Architecture of its programs, in Kubernetes' words; empty if dpkg does not say."""
        return {"armhf": "arm", "armel": "arm"}.get(
            self.one.get("userland", ""), self.one.get("userland", "")
        )

    def number(self, key: str) -> int:
        """A fact that is a whole number; 0 where it is missing."""
        text = self.one.get(key, "")
        return int(text) if text.isdigit() else 0

    def all(self, key: str) -> tuple[str, ...]:
        """All values of a fact."""
        return self.many.get(key, ())

    def pairs(self, key: str) -> dict[str, str]:
        """Facts of the form `name rest` as name → rest."""
        return {name: rest for name, _, rest in (value.partition(" ") for value in self.all(key))}

    def has(self, feature: str) -> bool:
        """Whether a kernel feature was seen to work."""
        return feature in self.all("feature")


# Keys that may come several times.
SEVERAL = (
    "free_kib", "listens", "unit", "program", "leftover", "link", "address", "feature", "lacks", "resolves",
    "sysctl", "file", "image", "flag", "tuning", "kube.node", "kube.object",
)  # fmt: skip
_LINE = re.compile(r"^([A-Za-z_.]+)\t(.*)$")


def parse(text: str, sent_s: float | None = None, received_s: float | None = None) -> Facts:
    """What the probe printed as facts; with the times (seconds since 1970) between which it ran."""
    one: dict[str, str] = {}
    many: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        key, value = found[1], found[2].strip()
        if key in SEVERAL:
            many[key].append(value)
        else:
            one[key] = value
    ahead = error = 0.0
    if sent_s is not None and received_s is not None and "epoch" in one:
        # Its first look at its clock came after we had sent, its last one before we had received.
        most, least = float(one["epoch"]) - sent_s, float(one.get("ended", one["epoch"])) - received_s
        ahead, error = (most + least) / 2, (most - least) / 2
    return Facts(one, {key: tuple(values) for key, values in many.items()}, ahead, error)


def probe(
    names: tuple[str, ...] = (), sysctls: tuple[str, ...] = (), files: tuple[str, ...] = (), extra: str = ""
) -> str:
    """The probe's script, which also looks at these host names, sysctls and files; `extra` is more script."""
    words = {"NAMES": names, "SYSCTLS": sysctls, "FILES": files}
    given = "".join(f"{key}='{' '.join(values)}'\n" for key, values in words.items())
    return given + PROBE + extra + 'say ended "$(date +%s.%N)"\n'


def gather(
    connections: Connections,
    sysctls: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    extra: Callable[[str], str] = lambda name: "",
) -> tuple[dict[str, Facts], dict[str, K8sddsError]]:
    """The facts of all machines, side by side; and why there are none of the others.

    `extra` gives more lines of the probe for the machine of a name.
    """

    def look(host: Host) -> Facts:
        # Its own name alone: each name that nobody answers for takes seconds.
        script = probe((host.name,), sysctls, files, extra(host.name))
        free = f"flock --shared --nonblock {LOCK} true\n[ $? != 1 ] || exit {BUSY}\n"
        sent = time.time()
        done = host.run(free + script, timeout_s=60)
        if done.code == BUSY:
            _await_end(host)
            sent = time.time()
            done = host.run(script, timeout_s=60)
        facts = parse(done.out, sent, time.time())
        if done.code != 0 or "machine" not in facts.one:
            said = (done.err.strip().splitlines() or ["nothing was said"])[-1]
            raise HostError(host.name, f"the facts could not be gathered: {said}", "is it a Linux machine?")
        return facts

    return connections.each(look, connections.hosts)


def _await_end(host: Host) -> None:
    waited = host.run(f"flock --shared --timeout {BUSY_S} {LOCK} true", timeout_s=BUSY_S + 30)
    if waited.code == 1:
        raise HostError(
            host.name, "is still busy with what a command began that was interrupted", "again in a minute"
        )
