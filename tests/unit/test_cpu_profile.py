"""Profiles: samples of recorded real perf output, their components, the record, the table and the flame graph."""

from __future__ import annotations

import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds.analysis import components, profile
from k8sdds.analysis.components import COMPONENTS, LINK, NETWORK, PARTICIPANT
from k8sdds.campaign import experiments
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.experiments import Changes
from k8sdds.model.trial import Cell, Trial
from k8sdds.report import content as contents
from k8sdds.report import profiles
from k8sdds.report.figures import flame_graph
from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import perf
from k8sdds.system.errors import PartFailed
from k8sdds.system.reading import UnreadableError
from k8sdds.testbeds import repetitions
from k8sdds.testbeds.cluster import evidence, preflight
from k8sdds.testbeds.evidence import ProfileReading
from k8sdds.testbeds.lab.lab_network import LabNetwork
from tests import run_folders

RECORDED = Path(__file__).parent / "recorded" / "perf" / "script.txt"
"""`perf script` of a throughput trial on flannel-vxlan in the lab, on a machine without PMU that ran other programs too."""
PUBLISHER, SUBSCRIBER = 17391, 17392


def recorded() -> list[perf.Sample]:
    return list(perf.parse(iter(RECORDED.read_text().splitlines())))


def reduced(**changes: Any) -> profile.Profile:
    samples = recorded()
    times = [sample.monotonic_ns for sample in samples]
    arguments = {
        "samples": samples, "events": ["cpu-clock"], "hertz": 499, "start_ns": min(times), "end_ns": max(times) + 1,
        "owner": {PUBLISHER: PARTICIPANT, SUBSCRIBER: PARTICIPANT}.get, **changes,
    }  # fmt: skip
    return profile.reduce(**arguments)


def test_recorded_output_is_read_completely() -> None:
    samples = recorded()
    assert len(samples) == len(re.findall(r"^\S.*cpu-clock:", RECORDED.read_text(), re.MULTILINE))
    assert {sample.event for sample in samples} == {"cpu-clock"}
    assert {sample.weight for sample in samples} == {2004008}  # ns at 499 samples per second
    sent = next(sample for sample in samples if "udp_sendmsg" in sample.kernel)
    assert sent.kernel.index("do_syscall_64") < sent.kernel.index("udp_sendmsg")
    assert sent.user[-1] == "__libc_sendmsg (libc.so.6)"


def test_at_least_90_percent_of_recorded_samples_belong_to_a_component() -> None:
    summary = profile.summary(reduced(), packets=1000)
    assert summary.attributed_percent is not None and summary.attributed_percent >= 90
    shares = {name: cost.percent for name, cost in summary.components.items()}
    assert sum(shares.values()) == pytest.approx(100, abs=0.1)
    assert {"netfilter", "tunnel", "routing", "UDP/TCP", "copy", "application"} <= shares.keys()
    assert "crypto" not in shares
    assert sum(cost.cpu_ms for cost in summary.components.values()) == pytest.approx(summary.cpu_s * 1000)
    netfilter = summary.components["netfilter"]
    assert netfilter.ns_per_packet == pytest.approx(netfilter.cpu_ms * 1e6 / 1000)
    assert netfilter.cycles_per_packet is None


def test_other_programs_and_idle_cores_are_left_out_but_their_packet_work_counts() -> None:
    found = reduced()
    assert {stack.process for stack in found.stacks} == {"k8sdds-perftest", "recvUC", components.INTERRUPTS}
    interrupts = [stack for stack in found.stacks if stack.owner == components.INTERRUPTS]
    assert interrupts and not any(stack.user for stack in interrupts)
    assert not any("do_syscall_64" in stack.kernel for stack in interrupts)
    assert found.others_ns > 0
    everything = sum(sample.weight for sample in recorded())
    idle = sum(sample.weight for sample in recorded() if sample.kernel[-1:] == ("pv_native_safe_halt",))
    assert idle > 0 and sum(stack.ns for stack in found.stacks) + found.others_ns <= everything - idle


def test_of_the_emulator_of_links_only_the_work_for_the_receiving_node_counts() -> None:
    """The recorded publisher sends packets, which the kernel then processes in its system calls, as the emulator does."""
    as_other = reduced(owner={SUBSCRIBER: PARTICIPANT}.get)
    found = reduced(owner={PUBLISHER: LINK, SUBSCRIBER: PARTICIPANT}.get)
    known = {(stack.owner, stack.process, *stack.kernel) for stack in as_other.stacks}
    received = [it for it in found.stacks if (it.owner, it.process, *it.kernel) not in known]
    assert received and {stack.owner for stack in received} == {components.INTERRUPTS}
    assert {stack.kernel[0] for stack in received} <= {"handle_softirqs", "__do_softirq", "net_rx_action"}
    assert {stack.component for stack in received} <= set(components.DATAPATH)
    assert not any(name.startswith("__sys_send") for stack in received for name in stack.kernel)
    gained_ns = sum(stack.ns for stack in found.stacks) - sum(stack.ns for stack in as_other.stacks)
    assert gained_ns == as_other.others_ns - found.others_ns > 0


def test_samples_of_the_measured_interval_count_and_a_recording_of_a_part_of_it_is_refused() -> None:
    times = sorted(sample.monotonic_ns for sample in recorded())
    assert 0 < reduced(end_ns=times[len(times) // 2]).samples < reduced().samples
    assert reduced(end_ns=times[0]).samples == 0
    for incomplete in ({"start_ns": times[0] - 10**9}, {"end_ns": times[-1] + 10**9}, {"samples": []}):
        with pytest.raises(UnreadableError, match=r"perf did not record \d+\.\d s of the measured interval"):
            reduced(**incomplete)


def test_a_recording_with_lost_samples_is_refused() -> None:
    """The line is from `perf script` of a recording with a buffer of two pages."""
    line = "k8sdds 30042/30042 [000] 15432.979858179: PERF_RECORD_LOST lost 112"
    (lost,) = perf.parse(iter([line]))
    assert (lost.event, lost.weight, lost.monotonic_ns) == (perf.LOST, 112, 15432979858179)
    samples = recorded()
    middle_ns = samples[len(samples) // 2].monotonic_ns
    tolerated = len(samples) // 200
    for count, refused in ((tolerated, False), (5 * tolerated, True)):
        own = [*samples, replace(lost, monotonic_ns=middle_ns, weight=count)]
        expected = (
            pytest.raises(UnreadableError, match=f"perf lost {count} of ") if refused else nullcontext()
        )
        with expected:
            assert reduced(samples=own) == reduced()
    before = replace(lost, monotonic_ns=min(sample.monotonic_ns for sample in samples) - 1, weight=10**6)
    assert reduced(samples=[before, *samples]) == reduced()


@pytest.mark.parametrize(
    ("kernel", "component"),
    [
        ("do_syscall_64 udp_sendmsg ip_output __dev_queue_xmit veth_xmit memcpy", "veth"),
        ("net_rx_action br_handle_frame br_nf_pre_routing _raw_spin_lock", "netfilter"),
        ("net_rx_action br_handle_frame br_forward kmem_cache_alloc", "bridge"),
        ("ip_output ip_finish_output2 dev_hard_start_xmit vxlan_xmit_one udp_tunnel_xmit_skb", "tunnel"),
        ("xfrm_output esp_output crypto_aead_encrypt aesni_encrypt", "crypto"),
        ("ip_rcv nf_hook_slow ipt_do_table", "netfilter"),
        ("ip_forward ip_set_test", "netfilter"),
        ("ip_rcv_finish ip_route_input_slow fib_table_lookup", "routing"),
        ("__sys_recvmsg udp_recvmsg __skb_recv_udp schedule_timeout", "UDP/TCP"),
        ("udp_queue_rcv_one_skb __udp_enqueue_schedule_skb sock_def_readable __wake_up try_to_wake_up", "socket wake-up"),
        ("udp_recvmsg skb_copy_datagram_iter _copy_to_iter rep_movs_alternative", "copy"),
        ("net_rx_action net_rps_send_ipi generic_exec_single x2apic_send_IPI native_write_msr", "packet steering"),
        ("__schedule raw_spin_rq_lock_nested", "scheduling"),
        ("asm_exc_page_fault handle_mm_fault", "other"),
    ],
)  # fmt: skip
def test_the_deepest_listed_function_decides(kernel: str, component: str) -> None:
    assert components.of_stack(PARTICIPANT, ["main (a)"], kernel.split()).name == component


def test_user_space_belongs_to_the_application_the_network_or_ciphers() -> None:
    def of(owner: str, *user: str) -> str:
        return components.of_stack(owner, user, []).name

    assert of(PARTICIPANT, "main (k8sdds-perftest)") == "application"
    assert of(NETWORK, "run (charon-systemd)") == "network daemon"
    assert of(NETWORK, "run (charon-systemd)", "libcrypto.so.3") == "crypto"
    assert of(NETWORK, "golang.org/x/crypto/chacha20poly1305.seal (wireguard-go)") == "crypto"


def test_cycles_replace_the_clock_where_a_pmu_counts_them() -> None:
    samples = recorded()
    cycles = [replace(sample, event="cycles", weight=5000) for sample in samples]
    found = reduced(samples=[*samples, *cycles], events=["cycles", "cpu-clock"])
    summary = profile.summary(found, packets=100)
    assert summary.event == "cycles" and summary.samples == reduced().samples
    for cost in summary.components.values():
        assert cost.cycles_per_packet == pytest.approx(
            cost.percent / 100 * summary.samples * 5000 / 100, rel=0.01
        )
    assert summary.cpu_s == pytest.approx(profile.summary(reduced(), None).cpu_s)


def test_the_event_is_the_clock_unless_cycles_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for line, events in (
        ("<not supported>,,cycles,0,100.00,,", ("cpu-clock",)),
        ("<not counted>,,cycles,0,0.00,,", ("cpu-clock",)),
        ("1234567,,cycles,1000,100.00,,", ("cycles", "cpu-clock")),
    ):
        shown = SimpleNamespace(stderr=line)
        monkeypatch.setattr(perf.subprocess, "run", lambda *_, shown=shown, **__: shown)
        assert perf.events.__wrapped__() == events
    # The rate is limited on machines with many cores.
    for cores, most in ((4, perf.MAX_HERTZ), (128, perf.MAX_HERTZ - 1)):
        monkeypatch.setattr(perf.os, "cpu_count", lambda cores=cores: cores)
        assert perf.MIN_HERTZ <= perf.hertz(10 if cores == 4 else 30) <= most


def test_too_much_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def readline(self, size: int) -> bytes:
            return b"x" * size

    monkeypatch.setattr(perf, "MAX_TEXT_BYTES", 10 * perf.MAX_LINE_BYTES)
    with pytest.raises(UnreadableError, match="too much"):
        list(perf._lines(SimpleNamespace(stdout=Endless())))  # type: ignore[arg-type]


def test_profiles_are_a_repetition_of_their_own_after_all_others() -> None:
    experiment = experiments.changed(experiments.load("quickstart"), Changes(profile=True))
    trials = expand(experiment).trials("lab")
    *measured, last = repetitions(trials, seed=1)
    assert all(not trial.cell.profile for block in measured for trial in block.trials)
    assert sorted((t.cell.network_label, t.cell.test) for t in last.trials) == sorted(
        {(t.cell.network_label, t.cell.test) for t in trials}
    )
    assert all(trial.cell.profile for trial in last.trials)
    plain = {trial.trial_id for trial in expand(experiments.load("quickstart")).trials("lab")}
    assert plain == {trial.trial_id for block in measured for trial in block.trials}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    """A run folder with a profiled trial of every network."""
    folder = run_folders.make(tmp_path / "run", run_folders.Plan(payloads=(1024,), tests=("throughput",)))
    found = reduced()
    found.stacks[0].process = "<script>alert(1)</script>"
    for network in run_folders.FIVE:
        trial_id = f"{network.replace('-', '')}-lab-r3"
        record = next(r for r in folder.attempts() if r["network"] == network)
        metrics = {
            name: None for name in record if name in tidy.RECORD_COLUMNS and name.endswith(("_mbps", "_us"))
        }
        summary = profile.summary(found, 1000).model_dump()
        folder.append_attempt(
            record | metrics | {"trial_id": trial_id, "repetition": 3, "profiled": True, "profile": summary}
        )
        raw = folder.raw(trial_id, record["attempt"])
        raw.mkdir(parents=True)
        (raw / profile.FILE).write_text(found.model_dump_json())
    yield folder


def test_profiled_trials_never_enter_statistics(run: RunFolder) -> None:
    content = contents.read(run)
    assert len(content.best) == 15 and not any(row["trial_id"].endswith("-r3") for row in content.best)
    assert content.planned == 15 and content.untried == 0
    assert {row["n"] for row in content.levels} == {3}
    # The record of a profile is checked when it is read.
    (first, *_) = [attempt for attempt in run.attempts() if attempt.get("profiled")]
    assert first["valid"] and first["profile"]["event"] == "cpu-clock"
    first["profile"]["components"]["veth"] = {"percent": -1}
    run.append_attempt(first)
    assert run.attempts()[-1]["valid"] is False


def test_the_report_has_a_table_and_a_flame_graph_of_each_network(run: RunFolder, tmp_path: Path) -> None:
    content = contents.read(run)
    (table,) = profiles.tables(content)
    assert table.heads == ["component", *run_folders.FIVE]
    names = [row[0].text for row in table.rows]
    components = [component.name for component in COMPONENTS if component.name in names]
    assert len(components) > 3 and names[: len(components)] == components
    assert "no PMU" in table.under
    assert {row["network"] for row in profiles.rows(content)} == set(run_folders.FIVE)
    assert flame_graph.COLORS.keys() == {component.name for component in COMPONENTS}
    functions = [function for component in COMPONENTS for function in component.functions.split()]
    assert len(functions) == len(set(functions))
    figures = flame_graph.draw(content, tmp_path)
    assert len({figure.slug for figure in figures}) == 5
    for figure in figures:
        text = (tmp_path / f"{figure.slug}.svg").read_text()
        root = ElementTree.fromstring(text)
        assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}
        assert "&lt;script&gt;" in text and "url(" not in text and "href" not in text
        widths = [float(e.get("width", "0").rstrip("%")) for e in root.iter() if e.tag.endswith("rect")]
        assert max(widths) <= flame_graph.WIDTH


def test_a_damaged_profile_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"events": [], "stacks": 1}', reduced().model_dump_json()[:-20]):
        (tmp_path / profile.FILE).write_text(text)
        with pytest.raises(UnreadableError):
            profile.read(tmp_path)
    (tmp_path / profile.FILE).write_text(reduced().model_dump_json())
    assert profile.read(tmp_path) == reduced()


def test_clusters_on_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf, "problems", list)
    own = preflight.BOOT_ID.read_text().strip()
    here, elsewhere = SimpleNamespace(name="n1", boot_id=own), SimpleNamespace(name="n2", boot_id="other")
    profiled: Any = [SimpleNamespace(profile=True)]
    assert preflight.profile_problems(profiled, [here]) == []  # type: ignore[list-item]
    (problem,) = preflight.profile_problems(profiled, [here, elsewhere])  # type: ignore[list-item]
    assert "n2 run another kernel" in problem.what and "--profile" in problem.remedy
    assert preflight.profile_problems(profiled, [])


def test_processes_are_found_by_the_pod_in_their_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    uid = "12e77b7d-c8c5-4132-aeff-ddb47d0439e9"
    scope = f"0::/c/worker1/kubepods.slice/kubepods-burstable-pod{uid.replace('-', '_')}.slice/cri-containerd-f3.scope\n"
    cgroups = {"/proc/7/cgroup": scope, "/proc/9/cgroup": "0::/c/worker1/system.slice/k8sdds-link.service\n"}
    monkeypatch.setattr(Path, "read_text", lambda path: cgroups.get(str(path), "0::/\n"))
    owner = evidence.owner({uid: PARTICIPANT})
    assert owner(7) == PARTICIPANT and owner(8) is None and owner(9) == LINK


@pytest.mark.parametrize(("in_pods", "daemons"), [(True, NETWORK), (False, PARTICIPANT)])
def test_the_emulator_of_links_is_not_the_network_although_it_shares_its_namespace(
    in_pods: bool, daemons: str
) -> None:
    plan: Any = SimpleNamespace(datapath=SimpleNamespace(in_pods=in_pods))
    sandbox: Any = SimpleNamespace(name="lab", pid=os.getpid())
    lab_network = LabNetwork(plan, sandbox)
    with subprocess.Popen(["sleep", "60"]) as process:
        assert lab_network.owner_of(process.pid) == daemons
        emulator: Any = SimpleNamespace(pid=process.pid)
        lab_network.emulator = emulator
        assert lab_network.owner_of(process.pid) == LINK
        assert lab_network.owner_of(os.getpid()) == daemons
        process.kill()
    assert lab_network.owner_of(2**22 + 1) is None


def test_the_recording_of_a_failed_attempt_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def recording(path: Path, *_: object) -> Iterator[None]:
        path.touch()
        yield

    monkeypatch.setattr(perf, "recording", recording)
    cell = Cell(network="host", test="throughput", payload_bytes=64)
    trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=1, warmup_s=0)
    reading = ProfileReading(trial, tmp_path, lambda pid: None, 10)
    with pytest.raises(PartFailed), reading.recording():
        raise PartFailed("a pod was killed")
    assert not list(tmp_path.iterdir())
