"""Create run folders in the format of a campaign, with known overheads.

`python -m tests.run_folders TARGET` creates one folder of each kind for inspection.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

from hdrh.histogram import HdrHistogram

from k8sdds.results.run_folder import CAMPAIGN, TRIALS, RunFolder

# Numbers that the study printed, for tests that put them in and for tests that expect them.
PAYLOADS = (64, 256, 1024, 4096, 16384)
"""In bytes; the columns of its tables."""

TABLE_I = {
    "flannel-vxlan": (45.6, 44.4, 41.3, 8.4, 2.9),
    "flannel-hostgw": (29.8, 28.4, 24.6, 0.3, -0.1),
    "kube-router": (28.1, 28.4, 24.5, 0.3, -0.1),
    "weavenet": (52.6, 51.6, 49.5, 15.5, 2.8),
}
"""Throughput overhead against the host's network, in percent."""

TABLE_II = {
    "flannel-vxlan": (39.3, 37.8, 28.7, 25.6, 35.9),
    "flannel-hostgw": (16.5, 15.2, 13.1, 18.8, 27.7),
    "kube-router": (13.5, 12.6, 9.8, 19.1, 30.3),
    "weavenet": (52.2, 48.7, 38.6, 33.1, 41.4),
}
"""Overhead of the 90th percentile of latency, in percent."""

HOST_MBPS = dict(zip(PAYLOADS, (6.1, 23.0, 70.0, 91.0, 94.0), strict=True))
HOST_P90_US = dict(zip(PAYLOADS, (310.0, 330.0, 420.0, 700.0, 1650.0), strict=True))

NOTHING = (0, 0, 0, 0, 0)
# The values of weavenet-1376 are invented.
THROUGHPUT_OVERHEAD = {"host": NOTHING, **TABLE_I, "weavenet-1376": (52.8, 51.9, 50.4, 17.5, 4.9)}
LATENCY_OVERHEAD = {"host": NOTHING, **TABLE_II, "weavenet-1376": (52.9, 49.9, 40.1, 37.4, 48.0)}
FIVE = ("host", "flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet")
MTU = {"host": 1500, "flannel-vxlan": 1450, "flannel-hostgw": 1500, "kube-router": 1480, "weavenet": 1438}


@dataclass
class Plan:
    """The content of a run folder. With `noise` 0, it has exactly the overheads of the tables above."""

    networks: tuple[str, ...] = FIVE
    payloads: tuple[int, ...] = PAYLOADS
    tests: tuple[str, ...] = ("throughput", "latency")
    repetitions: int = 3
    noise: float = 0.02
    seed: int = 7
    baseline: str | None = "host"
    conditions: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    """Further dimensions: each dict is one sweep over networks, payloads and tests; it can restrict `networks`."""
    histograms: bool = True
    details: bool = False
    """Whether trials have a timeline, CPU per delivered MB, daemons of the network and fingerprints."""
    testbed: str = "lab"
    layouts: tuple[str, str] = ("split", "same")


def make(path: Path, plan: Plan | None = None, name: str = "made") -> RunFolder:
    """Create a complete run folder for a plan."""
    plan = plan or Plan()
    attempts, trials = [], {}
    random_ = random.Random(plan.seed)
    for repetition in range(plan.repetitions):
        drift = math.exp(random_.gauss(0, 2 * plan.noise))
        for condition in plan.conditions:
            for network in condition.get("networks", plan.networks):
                for test in plan.tests:
                    for payload in condition.get("payloads", plan.payloads):
                        more = {k: v for k, v in condition.items() if k not in ("networks", "payloads")}
                        attempts.append(
                            attempt(plan, random_, network, test, payload, repetition, drift, more)
                        )
    random_.shuffle(attempts)
    attempts.sort(key=lambda item: item["block"])
    for order, item in enumerate(attempts):
        item["order"] = order
        trials[item["trial_id"]] = {"cell_id": item["cell_id"]}
    run = RunFolder.create(path, campaign(plan, name, trials, attempts), "name: made\n")
    run.append_event("started")
    # All at once, because append_attempt syncs the disk for each.
    run.append_attempts([complete(run, plan, item) for item in attempts])
    _without_checksums(run)
    run.append_event("ended")
    return run


def add(run: RunFolder, plan: Plan, item: dict[str, Any]) -> None:
    """Append an attempt with its percentiles, and write their histogram."""
    run.append_attempt(complete(run, plan, item))
    _without_checksums(run)


def rewritten(run: RunFolder, attempts: Iterable[dict[str, Any]]) -> RunFolder:
    """Replace the attempts of a run folder, and return it as it is read again."""
    (run.path / TRIALS).write_text("".join(json.dumps(attempt) + "\n" for attempt in attempts))
    return RunFolder.open(run.path)


def changed(run: RunFolder, values: dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]) -> RunFolder:
    """Give all attempts of a run folder these values, or those that a function returns for each."""
    change = values if callable(values) else lambda _: values
    return rewritten(run, [attempt | change(attempt) for attempt in run.attempts()])


def with_campaign(run: RunFolder, **keys: Any) -> RunFolder:
    """Replace keys of campaign.json, and return the run folder as it is read again."""
    path = run.path / CAMPAIGN
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    return RunFolder.open(run.path)


def _without_checksums(run: RunFolder) -> None:
    """Let the lines be those of an earlier version, so that tests can change them."""
    path = run.path / TRIALS
    path.write_bytes(re.sub(rb', "checksum": "[0-9a-f]{8}"', b"", path.read_bytes()))


def complete(run: RunFolder, plan: Plan, item: dict[str, Any]) -> dict[str, Any]:
    """Return the attempt with its percentiles, and write a histogram that has them."""
    p90 = item.pop("made_p90")
    names = {"p50": 50, "p99": 99, "p9999": 99.99, "max": 100}
    tags = {"latency": "latency", "paced": "one_way", "throughput": "loaded_latency"}
    if p90 and plan.histograms:
        histogram = lognormal(p90)
        result = histogram.get_percentile_to_value_dict(list(map(float, names.values())))
        write_hlog(run, item, tags[item["test"]], histogram)
    if p90 and item["test"] != "throughput":
        timed = "latency" if item["test"] == "latency" else "delay"
        for key, percentile in names.items():
            value = result[percentile] / 1000 if plan.histograms else p90 * percentile / 90
            item[f"{timed}_{key}_us"] = value
        item[f"{timed}_mean_us"] = item[f"{timed}_p50_us"] * 1.05
    return item | _details(run, plan, item) if plan.details else item


def _details(run: RunFolder, plan: Plan, item: dict[str, Any]) -> dict[str, Any]:
    """Write the timeline of a throughput test, and return what further figures need."""
    if item["test"] == "throughput":
        total = round(item["sent"] * item["payload_bytes"] / 30)
        rows = [f"{100 * step},1,{total + total // 20 * (step % 5 - 2)}" for step in range(1, 31)]
        for index in range(item["subscribers"]):
            folder = run.raw(item["trial_id"], item["attempt"]) / f"sub{index}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "timeline.csv").write_text("\n".join(["elapsed_ms,samples,bytes", *rows]) + "\n")
    tunnel = item["network"].startswith(("weave", "flannel-vxlan"))
    return {
        "publisher_cpu_ms_per_mb": item["publisher_cpu_percent"] / 5, "subscriber_cpu_ms_per_mb": 14.0,
        "machine_cpu_ms_per_mb": 60.0, "network_cpu_percent": 35.0 if "weave" in item["network"] else None,
        "fingerprint": {"outer_protocol": "VXLAN" if tunnel else "none", "added_bytes": 50 if tunnel else 0},
        "drops": item["drops"] | {"udp_receive_buffer_errors": 1234 if tunnel else 0},
    }  # fmt: skip


def write_hlog(run: RunFolder, item: dict[str, Any], tag: str, histogram: HdrHistogram) -> Path:
    """Write latency.hlog of the participant that measures, in the format of perftest."""
    folder = run.raw(item["trial_id"], item["attempt"]) / ("sub0" if tag == "one_way" else "pub0")
    folder.mkdir(parents=True, exist_ok=True)
    blob = histogram.encode().decode()
    (folder / "latency.hlog").write_text(
        "#[Histogram log format version 1.3]\n"
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
        f"Tag={tag},0.000,3.000,{histogram.get_max_value() / 1e6:.3f},{blob}\n"
    )
    return folder / "latency.hlog"


def lognormal(p90_us: float) -> HdrHistogram:
    """Return a histogram in ns with a 90th percentile of about `p90_us` and 1 % slow samples."""
    histogram, sigma, values = HdrHistogram(1, 60_000_000_000, 3), 0.25, 400
    normal = NormalDist()
    centre = math.log(p90_us * 1000) - sigma * normal.inv_cdf(0.9)
    for i in range(values):
        slow = 4 if i >= values * 0.99 else 1
        value = slow * math.exp(centre + sigma * normal.inv_cdf((i + 0.5) / values))
        histogram.record_value(int(value), 10)
    return histogram


def attempt(
    plan: Plan, random_: random.Random, network: str, test: str, payload: int, repetition: int,
    drift: float, more: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return a valid attempt with every key of docs/reference/run-folder.md, and `made_p90` for its histogram."""
    subscribers = more.get("subscribers", 1)
    multicast = more.get("transport") == "multicast"

    def noisy(value: float) -> float:
        return value * drift * math.exp(random_.gauss(0, plan.noise)) if plan.noise else value

    overhead = _interpolated(THROUGHPUT_OVERHEAD, network, payload)
    mbps = _interpolated_level(HOST_MBPS, payload) * (1 - overhead / 100)
    # With unicast, subscribers share the sender; with multicast, they do not.
    mbps = noisy(mbps * 0.45 if multicast else mbps / subscribers)
    p90 = _interpolated_level(HOST_P90_US, payload) * (
        1 + _interpolated(LATENCY_OVERHEAD, network, payload) / 100
    )
    p90 = noisy(p90 * (1 + 0.05 * (subscribers - 1)))
    throughput = test == "throughput"
    rate = mbps * 1e6 / 8 / payload
    sent = int(rate * 3) if throughput else 9000
    cell = "-".join(str(part) for part in (network, test, payload, *more.values()))
    item = {
        "schema": 1, "trial_id": f"{cell}-{plan.testbed}-r{repetition}", "cell_id": cell, "attempt": 1,
        "block": repetition, "order": 0, "testbed": plan.testbed, "network": network.removesuffix("-1376"),
        "network_label": network, "network_options": {"mtu": 1376} if network.endswith("1376") else {},
        "engine": None, "fidelity": "modelled" if network.startswith("weave") else "equivalent",
        "mtu_bytes": MTU.get(network, 1376), "test": test, "payload_bytes": payload, "publishers": 1,
        "subscribers": 1, "nodes": min(1 + subscribers, 10), "placement": "spread",
        "reliability": "reliable", "transport": "unicast", "middleware": "cyclonedds",
        "middleware_version": "0.10.2", "security": "none", "qos": "strict-reliable", "batch_bytes": 0,
        "rate": 0, "link": {"rate_mbit": 100, "loss_percent": 0, "delay_us": 0},
        "layout": plan.layouts[0 if throughput else 1], "includes_scheduling": subscribers > 1,
        "cpu_quota": None, "receive_mode": "listener", "repetition": repetition,
        "started_at": "2026-11-21T10:15:30.000Z", "duration_s": 3, "warmup_s": 0.5, "measured_s": 3.0,
        "wall_s": 4.6, "domain": 12, "valid": True, "reason": None, "warnings": [],
        "throughput_mbps": mbps if throughput else None, "samples_per_s": rate if throughput else None,
        "sent": sent, "received": sent * subscribers, "lost": 0, "duplicates": 0, "out_of_order": 0,
        "lost_percent": 0.0, "latency_mean_us": None, "latency_p50_us": None,
        "latency_p90_us": p90 if test == "latency" else None, "latency_p99_us": None, "latency_p9999_us": None,
        "latency_max_us": None, "loaded_latency_p50_us": (loaded_p50 := noisy(2 * p90)) if throughput else None,
        "loaded_latency_p90_us": max(loaded_p50, noisy(3 * p90)) if throughput else None,
        "publisher_cpu_percent": noisy(97 if throughput else 20),
        "subscriber_cpu_percent": noisy(70 if throughput else 18),
        "machine_cpu_percent": noisy(48 + overhead / 4), "softirq_percent": noisy(3 + overhead / 5),
        "publisher_rss_bytes": int(noisy(14e6)), "subscriber_rss_bytes": int(noisy(16e6)),
        "discovery_s": noisy(0.4), "link_bytes": {
            "sent": sent * (payload + 90),
            "delivered_samples": {f"sub{index}": sent - index * sent // 50 for index in range(subscribers)},
        },
        "drops": {"udp_receive_buffer_errors": 0, "udp_send_buffer_errors": 0,
                  "ip_reassembly_fails": 0, "interface_drops": 0},
        "made_p90": 3 * p90 if throughput else p90,
    }  # fmt: skip
    if test == "paced":
        item |= {
            "delay_p90_us": p90, "delay_method": "shared clock", "delay_jitter_us": noisy(p90 / 10),
            "deadline_missed_percent": 0.5, "achieved_rate_percent": 100.0, "rate": 30,
        }  # fmt: skip
    return item | more


def invalid(item: dict[str, Any], number: int, reason: str) -> dict[str, Any]:
    """Return the attempt as an invalid one."""
    nulls = {key: None for key in ("throughput_mbps", "samples_per_s", "latency_p90_us")}
    return item | nulls | {"attempt": number, "valid": False, "reason": reason, "made_p90": None}


def campaign(plan: Plan, name: str, trials: dict[str, Any], attempts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return campaign.json for the attempts."""
    blocks: dict[int, list[str]] = {}
    for item in attempts:
        blocks.setdefault(item["block"], []).append(item["trial_id"])
    labels = dict.fromkeys([*plan.networks, *(item["network_label"] for item in attempts)])
    return {
        "schema": 1, "campaign": f"20261121T101530Z-{name}", "k8sdds_version": "0.1.0",
        "started_at": "2026-11-21T10:15:30.000Z", "experiment": name,
        "command": ["k8sdds", "run", f"experiments/{name}.yaml", "--repetitions", str(plan.repetitions)],
        "seed": 4711, "repetitions": plan.repetitions, "baseline": plan.baseline,
        "testbed": {"name": plan.testbed, "facts": {
            "kernel": "6.1.0-28-amd64", "cpu_model": "Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz", "cpu_count": 4,
            "governor": "performance", "memory_bytes": 16_500_000_000,
            "sysctls": {"net.core.rmem_max": 212992, "net.core.wmem_max": 212992},
            "packages": {"cyclonedds": "0.10.2-1", "iproute2": "6.1.0-3"},
            "nodes": {"node0": {"boot_id": "6f1c"}, "node1": {"boot_id": "6f1c"}},
            "capabilities": {"features": ["veth", "vxlan"], "lacks": {"xfrm-esp": "not supported"}},
        }},
        "blocks": list(blocks.values()), "trials": trials,
        "networks": {label: {
            "name": label.removesuffix("-1376"), "title": label, "mtu": MTU.get(label, 1376),
            "options": {}, "engine": None,
            "fidelity": "modelled" if label.startswith("weave") else "equivalent",
            "differences": "Open vSwitch datapath replaced by a kernel VXLAN device"
            if label.startswith("weave") else "",
            "encapsulation": "VXLAN" if "vxlan" in label or "weave" in label else "",
            "multicast": "head-end replication" if label.startswith("weave") else "",
        } for label in labels},
    }  # fmt: skip


def _interpolated(table: Mapping[str, Sequence[float]], network: str, payload: int) -> float:
    # Networks without published numbers get invented ones of similar size.
    known = table.get(network) or [sum(ord(letter) for letter in network) % 60] * len(PAYLOADS)
    return _interpolated_level(dict(zip(PAYLOADS, known, strict=True)), payload)


def _interpolated_level(levels: dict[int, float], payload: int) -> float:
    if payload in levels:
        return levels[payload]
    return levels[min(levels, key=lambda size: abs(math.log(size / payload)))]


# One folder of each kind that reports must handle.


def paper(path: Path) -> RunFolder:
    """Five networks, five payloads, both tests, three repetitions: the study's Tables I and II."""
    return make(path, Plan(), "paper")


def scaling(path: Path) -> RunFolder:
    """Throughput with 1 to 12 subscribers, unicast on all networks, multicast on weavenet."""
    sweeps: list[dict[str, Any]] = [{"subscribers": n} for n in (1, 4, 8, 12)]
    sweeps += [{"subscribers": n, "transport": "multicast", "networks": ("weavenet",)} for n in (1, 4, 8, 12)]
    plan = Plan(payloads=(1024,), tests=("throughput",), conditions=sweeps, histograms=False)
    return make(path, plan, "scaling")


def troubled(path: Path) -> RunFolder:
    """Interrupted, with retries, invalid trials, a variant, warnings, best effort and a torn last line."""
    plan = Plan(
        networks=("host", "flannel-vxlan", "weavenet", "weavenet-1376"), payloads=(256, 1400, 65000),
        conditions=[{}, {"reliability": "best-effort", "qos": "best-effort"}], noise=0.08, details=True,
    )  # fmt: skip
    whole = make(path, plan, "troubled")
    items, kept = whole.attempts(), []
    (path / "trials.jsonl").unlink()
    for index, item in enumerate(items[: int(len(items) * 0.8)]):
        item["made_p90"] = None
        if index % 9 == 0:
            reason = "not-on-wire: links carried 1 201 bytes, 4 410 000 were delivered"
            kept.append(invalid(item, 1, reason))
            item["attempt"] = 2
        if item["network_label"] == "weavenet" and item["payload_bytes"] == 65000:
            kept.append(invalid(item, 3, "lost-samples: 214 of 9000 samples were lost <reliable>"))
            continue
        if index % 7 == 0:
            item["warnings"] = ["machine busy: 31 % of the CPU was used by others"]
        kept.append(item)
    whole.append_attempts([complete(whole, plan, item) for item in kept])
    whole.append_event("interrupted", reason="Ctrl-C")
    with open(path / "trials.jsonl", "a") as file:
        file.write('{"schema": 1, "trial_id": "torn')
    return whole


def many(path: Path) -> RunFolder:
    """Eleven networks, some with long labels, two numbers of subscribers, seven payloads, and loss."""
    networks = (
        *FIVE, "baremetal", "flannel-ipsec", "weavenet-encrypt", "calico-ipip-always", "cilium-ebpf-host-routing",
        "flannel-vxlan-mtu1200",
    )  # fmt: skip
    link = {"rate_mbit": 100, "loss_percent": 0.5, "delay_us": 200}
    sweeps = [{"subscribers": n, "link": link} for n in (1, 4)]
    plan = Plan(
        networks=networks,
        payloads=(64, *PAYLOADS[1:], 65000, 1_000_000),
        conditions=sweeps,
        histograms=False,
        details=True,
    )
    return make(path, plan, "many")


def single(path: Path) -> RunFolder:
    """One repetition of two networks at one payload."""
    return make(path, Plan(networks=("host", "flannel-hostgw"), payloads=(1024,), repetitions=1), "single")


def camera(path: Path) -> RunFolder:
    """A paced test of two payloads with four subscribers."""
    plan = Plan(payloads=(1024, 16384), tests=("paced",), conditions=[{"subscribers": 4}])
    return make(path, plan, "camera")


def empty(path: Path) -> RunFolder:
    """Interrupted before the first trial ended."""
    plan = Plan()
    return RunFolder.create(path, campaign(plan, "empty", {"a": {}, "b": {}}, []), "name: empty\n")


def all_invalid(path: Path) -> RunFolder:
    """Only invalid attempts."""
    run = empty(path)
    plan, random_ = Plan(), random.Random(1)
    for network in FIVE:
        item = attempt(plan, random_, network, "latency", 1024, 0, 1.0, {})
        add(run, plan, invalid(item, 1, "peer-lost: sub0 ended with 1"))
    return run


def old(path: Path) -> RunFolder:
    """Like imported data: few keys, an unknown key, no baseline, no repetition."""
    run = RunFolder.create(path, {"schema": 1, "campaign": "imported"}, "")
    for network, mbps in (("host", 90.0), ("weavenet", 45.0)):
        run.append_attempt({
            "trial_id": network, "network": network, "valid": True, "test": "throughput",
            "payload_bytes": 1024, "throughput_mbps": mbps, "figure": "5a",
        })  # fmt: skip
    return run


KINDS = {
    make_.__name__: make_
    for make_ in (paper, scaling, troubled, many, single, camera, empty, all_invalid, old)
}

if __name__ == "__main__":
    for kind, maker in KINDS.items():
        print(maker(Path(sys.argv[1]) / kind).path)
