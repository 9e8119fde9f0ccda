"""Clusters of local nodes: make, find, stop and remove them."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from k8sdds.errors import InputError, LackError
from k8sdds.folders import cache_folder
from k8sdds.nodes import cgroups, record
from k8sdds.nodes.record import Machine, Record
from k8sdds.nodes.rootfs import rootfs
from k8sdds.nodes.spec import LocalNode, NodeSpec
from k8sdds.testbeds.lab import processes
from k8sdds.testbeds.lab.sandbox import Sandbox

HERE = Path(__file__).parent
NETWORK = "10.88.0"
FIRST_ADDRESS = 11
SSH_PORT = 22
BOOT_TIMEOUT_S = 60
OWNER = "owner"
"""File that tells whose a folder of machines' data is: the path of the record's folder."""
ARCHES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}

_SWITCH = f"""\
ip link set lo up
ip link add switch type bridge
ip addr add {NETWORK}.1/24 dev switch
ip link set switch up
ip route add unreachable default
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || sysctl -qw net.bridge.bridge-nf-call-iptables=0
"""
# Unknown addresses are unreachable at once and nothing can leave: the switch knows no way out.


def up(
    cluster: str, specs: Sequence[NodeSpec], said: Callable[[str], None] = lambda _: None
) -> list[LocalNode]:
    """Make a cluster's machines; those that run are kept, those that were stopped boot again.

    Returns them in the order of `specs` when all answer on their ssh port. Raises InputError or LackError,
    and then leaves nothing of a machine that it began to make.
    """
    _need_root()
    if len({spec.name for spec in specs}) != len(specs):
        raise InputError("two nodes have the same name", "give each its own")
    with record.locked(cluster):
        base = rootfs(said)
        known = record.read(cluster)
        if known and not known.alive:
            _stopped_all(known)
        known = known or _new(cluster)
        began: list[str] = []
        try:
            sandbox = _switch(known)
            for spec in specs:
                if spec.name not in known.machines:
                    known.machines[spec.name] = Machine(spec, _free_address(known))
                    began.append(spec.name)
            known.write()
            _write_files(known)
            for spec in specs:
                if not known.machines[spec.name].alive:
                    said(f"{spec.name}: boots at {known.machines[spec.name].address}")
                    _boot(known, sandbox, spec.name, base)
            for spec in specs:
                _await_ssh(known, spec.name)
        except BaseException:
            for name in began:
                _remove_machine(known, name)
            if not known.machines:
                _remove(known)
            raise
        return [_node(known, spec.name) for spec in specs]


def ls(cluster: str | None = None) -> list[LocalNode]:
    """The machines of one cluster, or of all."""
    known = [one for one in record.clusters() if cluster in (None, one.cluster)]
    return [_node(one, name) for one in known for name in one.machines]


def find(cluster: str, name: str) -> LocalNode:
    """A machine; InputError if there is none of this name."""
    return _node(_known(cluster, name), name)


def down(cluster: str, names: Sequence[str] | None = None) -> list[str]:
    """Remove a cluster, or some of its machines, with all that they wrote; the names of those removed.

    Raises LackError for what could not be removed.
    """
    _need_root()
    with record.locked(cluster):
        known = record.read(cluster)
        if known is None:
            removed = []
        elif names is None or set(known.machines) <= set(names):
            removed = list(known.machines)
            _remove(known)
        else:
            removed = [name for name in names if name in known.machines]
            for name in removed:
                _remove_machine(known, name)
            _write_files(known)
    if record.read(cluster) is None:
        (record.folder() / f"{cluster}.lock").unlink(missing_ok=True)
    return removed


def clean(everything: bool) -> tuple[list[str], list[str]]:
    """Remove clusters whose holder has ended, or all of this user's, and data without a record; the names of
    those removed and of those kept."""
    removed, kept = [], []
    for known in record.clusters():
        if known.alive and not everything:
            kept.append(known.cluster)
        else:
            down(known.cluster)
            removed.append(known.cluster)
    for owner in (cache_folder() / "nodes").glob(f"*/{OWNER}"):
        if not Path(owner.read_text(), "record.json").exists():
            shutil.rmtree(owner.parent)
            removed.append(owner.parent.name)
    return removed, kept


def stop(cluster: str, name: str) -> None:
    """Cut a machine's power: its processes end at once, its disk stays. `up` boots it again."""
    _need_root()
    with record.locked(cluster):
        _halt(_known(cluster, name), name)


def cut(cluster: str, name: str, cut: bool = True) -> None:
    """Unplug a machine's cable at the switch, or plug it in again."""
    known = _known(cluster, name)
    _sandbox(known).run(["ip", "link", "set", name, "down" if cut else "up"])


def exec_argv(cluster: str, name: str) -> list[str]:
    """The words before a command that run it in a machine, as its root; `switch` is what lies between."""
    if name == "switch":
        return _sandbox(_known(cluster)).enter()
    known = _known(cluster, name)
    machine = known.machines[name]
    if not machine.alive:
        raise InputError(f"{name} is stopped", f"boot it: k8sdds nodes up --cluster {cluster} {name}")
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
    words = ["nsenter", "--target", str(machine.pid), *namespaces, "--wd=/", "--", "env", "-i"]
    return [
        *words,
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LANG=C.UTF-8",
    ]


def run(cluster: str, name: str, argv: Sequence[str], stdin: str = "", timeout_s: float = 60) -> str:
    """Run a command in a machine as its root and give its stdout; a failure is a LackError."""
    try:
        done = subprocess.run(
            [*exec_argv(cluster, name), *argv], input=stdin, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise LackError(f"{name}: `{' '.join(argv)}` did not end within {timeout_s:g} s") from None
    if done.returncode:
        raise LackError(f"{name}: `{' '.join(argv)}` failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def connect(cluster: str, name: str, port: int) -> list[str]:
    """The command that connects stdin and stdout to a machine's port."""
    known = _known(cluster, name)
    return _proxy(known, known.machines[name].address, port)


# -- making ----------------------------------------------------------------------------------------


def _need_root() -> None:
    if os.geteuid() != 0:
        raise LackError("local nodes need root", "sudo, or a real machine in the profile")


def _new(cluster: str) -> Record:
    data = cache_folder() / "nodes" / f"{cluster}-{secrets.token_hex(4)}"
    made = Record(cluster, str(data))
    for hierarchy in cgroups.hierarchies():
        made.cgroup_folders.append(str(hierarchy.parent / f"k8sdds-{data.name}"))
    made.folder.mkdir(mode=0o700, exist_ok=True)
    made.write()
    data.mkdir(parents=True)
    (data / OWNER).write_text(str(made.folder))
    _keygen(made.folder / "key")
    return made


def _switch(known: Record) -> Sandbox:
    if known.alive:
        return _sandbox(known)
    sandbox = Sandbox(known.cluster)
    known.holder = (sandbox.pid, processes.start_time(sandbox.pid))
    known.write()
    sandbox.stay()
    sandbox.run(["sh", "-e"], stdin=_SWITCH)
    return sandbox


def _sandbox(known: Record) -> Sandbox:
    if not known.alive:
        raise InputError(f"the cluster {known.cluster!r} does not stand any more", "k8sdds nodes up, or down")
    return Sandbox.attach(known.cluster, known.holder[0])


def _free_address(known: Record) -> str:
    taken = {machine.address for machine in known.machines.values()}
    for last in range(FIRST_ADDRESS, 255):
        if f"{NETWORK}.{last}" not in taken:
            return f"{NETWORK}.{last}"
    raise InputError("a cluster has at most 244 nodes", "make another: --cluster")


def _keygen(path: Path) -> None:
    if not shutil.which("ssh-keygen"):
        raise LackError("ssh-keygen is not installed", "sudo apt-get install openssh-client")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "k8sdds", "-f", str(path)], check=True
    )


def _write_files(known: Record) -> None:
    """Host keys, known_hosts, ssh_config and hosts of all machines."""
    authorized = (known.folder / "key.pub").read_text()
    names = "".join(f"{machine.address} {name}\n" for name, machine in known.machines.items())
    hosts_keys = []
    for name, machine in known.machines.items():
        folder = Path(known.data) / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "host_key").exists():
            _keygen(folder / "host_key")
        (folder / "authorized_keys").write_text(authorized)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        kind, key, _ = (folder / "host_key.pub").read_text().split(" ", 2)
        hosts_keys.append(f"{name},{machine.address} {kind} {key}\n")
    (known.folder / "known_hosts").write_text("".join(hosts_keys))
    blocks = "\n".join(_node(known, name).ssh_block() for name in known.machines)
    (known.folder / "ssh_config").write_text(blocks)


def _boot(known: Record, sandbox: Sandbox, name: str, base: Path) -> None:
    machine, folder = known.machines[name], Path(known.data) / name
    spec = machine.spec
    sandbox.run(["sh", "-e"], stdin=_cable(machine))
    found = cgroups.hierarchies()
    joins = [cgroups.make(hierarchy, f"k8sdds-{Path(known.data).name}", name) for hierarchy in found]
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "NAME": name, "USER_NAME": spec.user, "SUDO": "yes" if spec.sudo else "no",
        "BOOT": spec.boot, "CONTAINERD": "yes" if spec.containerd else "no", "ROOTFS": str(base),
        "DIR": str(folder), "DISK_MIB": str(spec.disk_mib or 0), "JOIN": "\n".join(map(str, joins)),
        "CGROUPS": " ".join(hierarchy.name for hierarchy in found),
        "SHARES": "\n".join(f"{share.host.resolve()}\t{share.inside}" for share in spec.shares),
    }  # fmt: skip
    # 0 is whoever writes it.
    start = "for group in $JOIN; do echo 0 > $group/cgroup.procs; done; "
    unshare = "exec unshare --mount --uts --ipc --pid --cgroup --fork --propagation private sh "
    console = folder / "console.log"
    with console.open("wb") as output:
        process = subprocess.Popen(
            [*sandbox.enter(name), "sh", "-ec", start + unshare + str(HERE / "machine.sh")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while (pid := processes.descendant(process.pid, 2)) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LackError(f"{name} did not boot: {_last_words(console)}", "see: k8sdds doctor")
        time.sleep(0.01)
    machine.pid, machine.started = pid, processes.start_time(pid)
    known.write()


def _cable(machine: Machine) -> str:
    name, link = machine.spec.name, machine.spec.link
    shape = ""
    if link.delay_ms:
        rate = f" rate {link.rate_mbps}mbit" if link.rate_mbps else ""
        shape = f"tc qdisc replace dev {name} root netem limit 10000 delay {link.delay_ms}ms{rate}\n"
    elif link.rate_mbps:
        # 50 ms of queue, and a burst that a tick of the slowest kernels can carry.
        burst = max(16384, round(link.rate_mbps * 1e6 / 8 / 250))
        shape = f"tc qdisc replace dev {name} root tbf rate {link.rate_mbps}mbit burst {burst} latency 50ms\n"
    return f"""\
ip netns add {name}
ip link add {name} mtu {link.mtu} type veth peer name eth0 mtu {link.mtu} netns {name}
ip link set {name} master switch up
ip -n {name} link set lo up
ip -n {name} link set eth0 up
ip -n {name} addr add {machine.address}/24 dev eth0
ip -n {name} route add default via {NETWORK}.1
{shape}"""


def _await_ssh(known: Record, name: str) -> None:
    machine = known.machines[name]
    console = Path(known.data) / name / "console.log"
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    argv = _proxy(known, machine.address, SSH_PORT)
    while time.monotonic() < deadline:
        if not machine.alive:
            raise LackError(f"{name} ended while it booted: {_last_words(console)}", "see: k8sdds doctor")
        try:
            # No stdin: sshd greets, and the pipe ends with it.
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
            if done.stdout.startswith(b"SSH-"):
                return
        except subprocess.TimeoutExpired:
            pass
        time.sleep(0.1)
    raise LackError(f"{name} does not answer on its ssh port: {_last_words(console)}", "see: k8sdds doctor")


def _last_words(console: Path) -> str:
    with contextlib.suppress(OSError):
        lines = console.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or "it said nothing"
    return "it said nothing"


# -- finding ---------------------------------------------------------------------------------------


def _known(cluster: str, name: str | None = None) -> Record:
    known = record.read(cluster)
    if known is None:
        raise InputError(f"there is no cluster {cluster!r} of local nodes", "k8sdds nodes ls")
    if name is not None and name not in known.machines:
        raise InputError(
            f"there is no node {name!r} in {cluster!r}", f"there is: {', '.join(known.machines)}"
        )
    return known


def _proxy(known: Record, address: str, port: int) -> list[str]:
    pid, started = known.holder
    return [sys.executable, "-IS", str(HERE / "pipe.py"), str(pid), str(started), address, str(port)]


def _node(known: Record, name: str) -> LocalNode:
    machine = known.machines[name]
    return LocalNode(
        cluster=known.cluster,
        name=name,
        address=machine.address,
        port=SSH_PORT,
        user=machine.spec.user,
        arch=ARCHES.get(platform.machine(), platform.machine()),
        state="running" if machine.alive else "stopped",
        key_file=known.folder / "key",
        known_hosts_file=known.folder / "known_hosts",
        ssh_config=known.folder / "ssh_config",
        proxy_command=tuple(_proxy(known, machine.address, SSH_PORT)),
    )


# -- the end ---------------------------------------------------------------------------------------


def _stopped_all(known: Record) -> None:
    """The holder has ended (a reboot, a kill): its machines have too, but their disks are here."""
    for machine in known.machines.values():
        machine.pid, machine.started = 0, None
    known.holder = (0, None)
    known.write()


def _halt(known: Record, name: str) -> None:
    machine = known.machines[name]
    if processes.kill(machine.pid, machine.started):
        processes.wait_gone(machine.pid, 30)
    machine.pid, machine.started = 0, None
    known.write()
    if known.alive:
        # Takes the cable with it. Missing where the machine never got that far.
        with contextlib.suppress(LackError):
            _sandbox(known).run(["ip", "link", "del", name])
        with contextlib.suppress(LackError):
            _sandbox(known).run(["ip", "netns", "del", name])
    for folder in known.cgroup_folders:
        cgroups.remove(Path(folder) / name)


def _remove_machine(known: Record, name: str) -> None:
    _halt(known, name)
    shutil.rmtree(Path(known.data) / name, ignore_errors=True)
    if not (Path(known.data) / name).exists():
        del known.machines[name]
    known.write()


def _remove(known: Record) -> None:
    if processes.kill(*known.holder):
        processes.wait_gone(known.holder[0], 30)
    left = [folder for folder in known.cgroup_folders if not cgroups.remove(Path(folder))]
    deadline = time.monotonic() + 10
    while Path(known.data).exists() and time.monotonic() < deadline:
        shutil.rmtree(known.data, ignore_errors=True)
    if Path(known.data).exists():
        left.append(known.data)
    if left:
        raise LackError(f"could not be removed: {', '.join(left)}", "k8sdds nodes down, again")
    known.forget()
