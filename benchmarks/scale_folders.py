"""Create run folders of any size in the format of `k8sdds run`, for benchmarks of commands that read them.

The experiment is real: its cells and their ids are expanded from YAML. The results are drawn from log-normal
distributions around the overheads of the study that k8sdds follows. Every attempt has the raw files of both
participants, with latency histograms in the format of perftest. Equal size and seed give an equal folder.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

from k8sdds import __version__
from k8sdds.campaign import record as attempt
from k8sdds.campaign import start
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.middleware import qos_file
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Trial
from k8sdds.networks import find
from k8sdds.results import hdr
from k8sdds.results.run_folder import QOS, SCHEMA, TRIALS, RunFolder
from k8sdds.system import yaml_text

NETWORKS = {"host": 1.0, "flannel-vxlan": 0.62, "flannel-hostgw": 0.74, "kube-router": 0.75, "weavenet": 0.55}
"""Networks with their throughput relative to host."""
MTU_BYTES = {"flannel-vxlan": 1450, "kube-router": 1480, "weavenet": 1438}
PAYLOADS = (64, 256, 512, 1024, 1400, 2048, 4096, 8192, 16384, 63000)
LINKS_MBIT = (None, 10, 100, 1000, 2500)
REPETITIONS = 5
SPREAD = 0.03
"""Standard deviation of ln(value) between trials; repetitions have a common deviation of the same size."""
INVALID_EVERY = 200
"""One of this many trials has an invalid attempt before its valid one."""
STARTED_AT = "2026-11-21T10:15:30.000Z"

PARTICIPANTS = ("pub0", "sub0")
PER_PAYLOAD = len(NETWORKS) * 2 * REPETITIONS


def experiment(trials: int) -> Experiment:
    """Return an experiment with this many trials: first more payloads, then more settings."""
    payloads, rest = divmod(trials, PER_PAYLOAD)
    if rest or payloads < 1 or (payloads > len(PAYLOADS) and payloads % len(PAYLOADS)):
        raise ValueError(f"{trials} trials: must be {PER_PAYLOAD} × 1 to 10, or {PER_PAYLOAD * 10} × 1 to 20")
    settings = max(1, payloads // len(PAYLOADS))
    kinds = list(itertools.product(LINKS_MBIT, ("listener", "waitset"), ("reliable", "best-effort")))
    if settings > len(kinds):
        raise ValueError(f"{trials} trials: at most {PER_PAYLOAD * len(PAYLOADS) * len(kinds)}")
    sweeps = [
        {
            "networks": list(NETWORKS), "test": ["throughput", "latency"],
            "payload_bytes": list(PAYLOADS[: min(payloads, len(PAYLOADS))]),
            "reliability": reliability, "receive_mode": receive, "link": {"rate_mbit": mbit},
        }
        for mbit, receive, reliability in kinds[:settings]
    ]  # fmt: skip
    text = yaml_text.dump(
        {"name": f"scale-{trials}", "baseline": "host", "repetitions": REPETITIONS, "sweeps": sweeps}
    )
    return yaml_text.parse(text, Experiment, "scale.yaml")


def make(path: Path, trials: int, seed: int = 1, raw: bool = True) -> RunFolder:
    """Create a run folder with `trials` valid trials, with or without raw files."""
    chance = random.Random(seed)
    expansion = expand(experiment(trials))
    planned = expansion.trials("lab")
    blocks: dict[int, list[Trial]] = {}
    for trial in planned:
        blocks.setdefault(trial.repetition, []).append(trial)
    for members in blocks.values():
        chance.shuffle(members)
    run = RunFolder.create(
        path,
        _campaign(expansion, planned, blocks, seed),
        start.experiment_yaml(expansion.experiment),
        {f"{QOS}/{file.stem}.xml": file.read_bytes() for file in {qos_file(t.cell) for t in planned}},
    )
    run.append_event("started")
    drift = {repetition: chance.gauss(0, SPREAD) for repetition in blocks}
    # One write for all attempts, because append_attempt would sync the disk for each.
    with open(path / TRIALS, "w", encoding="utf-8") as file:
        for order, trial in enumerate(itertools.chain.from_iterable(blocks.values())):
            for record in _attempts(trial, order, drift[trial.repetition], chance):
                file.write(json.dumps(record) + "\n")
                if raw:
                    _write_raw(run, record)
    run.append_event("ended", valid=trials, trials=trials)
    return run


def _campaign(
    expansion: Expansion, planned: list[Trial], blocks: dict[int, list[Trial]], seed: int
) -> dict[str, Any]:
    networks: dict[str, Any] = {}
    for name in NETWORKS:
        network = find(name)
        networks[name] = {
            "name": name, "title": network.title, "options": {}, "layer": network.layer,
            "encapsulation": network.encapsulation, "multicast": network.multicast,
            "encryption": network.encryption, "differences": network.differences,
            "mtu_bytes": MTU_BYTES.get(name, 1500), "engine": None, "fidelity": network.fidelity,
        }  # fmt: skip
    return {
        "schema": SCHEMA,
        "campaign": f"20261121T101530Z-{expansion.experiment.name}",
        "k8sdds_version": __version__,
        "started_at": STARTED_AT,
        "experiment": expansion.experiment.name,
        "command": ["k8sdds", "run", f"{expansion.experiment.name}.yaml", "--seed", str(seed)],
        "seed": seed,
        "testbed": {"name": "lab", "facts": {"cpu_model": "made up", "kernel": "made up", "cpu_count": 2}},
        "baseline": expansion.experiment.baseline,
        "repetitions": REPETITIONS,
        "blocks": [[trial.trial_id for trial in members] for members in blocks.values()],
        "trials": {trial.trial_id: trial.model_dump(mode="json") for trial in planned},
        "networks": networks,
    }


# -- results -------------------------------------------------------------------------------


def _attempts(trial: Trial, order: int, drift: float, chance: random.Random) -> list[dict[str, Any]]:
    cell = trial.cell

    def noisy(value: float) -> float:
        return value * math.exp(drift + chance.gauss(0, SPREAD))

    speed = NETWORKS[cell.network]
    # The cost of a sample has a constant part and a part per byte; a slow link limits the rate.
    samples_per_s = noisy(speed * 1e6 / (9 + cell.payload_bytes / 150))
    if cell.link.rate_mbit:
        samples_per_s = min(
            samples_per_s, noisy(cell.link.rate_mbit * 0.94e6 / 8 / (cell.payload_bytes + 90))
        )
    p90_us = noisy((11 + cell.payload_bytes / 300) / speed)
    throughput = cell.test == "throughput"
    sent = round((samples_per_s if throughput else 0.4e6 / p90_us) * trial.duration_s)
    cpu = noisy(98 if throughput else 45)
    times = {name: None if throughput else p90_us * factor for name, factor in _PERCENTILES.items()}
    record = {
        "schema": SCHEMA, "trial_id": trial.trial_id, "cell_id": cell.cell_id, "attempt": 1,
        "testbed": trial.testbed, **attempt.description(trial),
        "block": trial.repetition, "order": order, "domain": order % 100, "started_at": STARTED_AT,
        "mtu_bytes": MTU_BYTES.get(cell.network, 1500), "engine": None,
        "fidelity": find(cell.network).fidelity, "wall_s": trial.duration_s + trial.warmup_s + 0.1,
        "includes_scheduling": False, "cpu_mhz": None, "valid": True, "reason": None,
        "warnings": ["disturbed: other processes used 14 % of a core while it measured"]
        if order % 97 == 0 else [],
        "throughput_mbps": samples_per_s * cell.payload_bytes * 8e-6 if throughput else None,
        "samples_per_s": samples_per_s if throughput else None, "measured_s": trial.duration_s + 0.0003,
        "discovery_s": noisy(0.003), "middleware_version": "0.10.2", "sent": sent, "received": sent,
        "lost": 0, "duplicates": 0, "out_of_order": 0, "lost_percent": 0.0, **times,
        "loaded_latency_p50_us": noisy(3 * p90_us) if throughput else None,
        "loaded_latency_p90_us": noisy(5 * p90_us) if throughput else None,
        "publisher_cpu_percent": cpu, "publisher_rss_bytes": round(noisy(8.5e6)),
        "subscriber_cpu_percent": noisy(0.8 * cpu), "subscriber_rss_bytes": round(noisy(8.4e6)),
        "machine_cpu_percent": noisy(60), "softirq_percent": noisy(20 / speed),
        "link_bytes": {"sent": sent * (cell.payload_bytes + 90),
                       "received": {"sub0": sent * (cell.payload_bytes + 90)},
                       "delivered_samples": {"sub0": sent}},
        "drops": {"udp_receive_buffer_errors": 0, "udp_send_buffer_errors": 0, "ip_reassembly_fails": 0,
                  "interface_drops": 0},
    }  # fmt: skip
    if order % INVALID_EVERY:
        return [record]
    failed = {"valid": False, "reason": "lost-samples: 3 samples of a reliable trial did not arrive"}
    return [record | failed, record | {"attempt": 2}]


_PERCENTILES = {
    "latency_mean_us": 0.96, "latency_p50_us": 0.93, "latency_p90_us": 1.0, "latency_p99_us": 1.6,
    "latency_p9999_us": 5.2, "latency_max_us": 40.0,
}  # fmt: skip
"""Values relative to the 90th percentile."""


def _write_raw(run: RunFolder, record: dict[str, Any]) -> None:
    folder = run.raw(record["trial_id"], record["attempt"])
    latency = record["test"] == "latency"
    p90_us = record["latency_p90_us"] or record["loaded_latency_p90_us"]
    summary = {key: record[key] for key in ("sent", "received", "lost", "measured_s", "samples_per_s")}
    per_100_ms = record["sent"] // 30
    timeline = "elapsed_ms,samples,bytes\n" + "".join(
        f"{step * 100},{per_100_ms},{per_100_ms * record['payload_bytes']}\n" for step in range(1, 31)
    )
    for name in PARTICIPANTS:
        place = folder / name
        place.mkdir(parents=True)
        output = {"perftest": [{"length": record["payload_bytes"], "intervals": []}], "k8sdds": summary}
        (place / "stdout").write_text(json.dumps(output) + "\n")
        (place / "stderr").write_text("k8sdds-perftest: test ended\n")
        (place / "timeline.csv").write_text(timeline)
        (place / "meters.json").write_text(json.dumps(_meters(record, name), indent=2) + "\n")
    tag = "latency" if latency else "loaded_latency"
    (folder / "pub0" / "latency.hlog").write_text(
        "#[Histogram log format version 1.3]\n"
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
        f"Tag={tag},0.000,3.000,{p90_us / 1000:.3f},{_histogram(round(math.log(p90_us) * 20))}\n"
    )


def _meters(record: dict[str, Any], name: str) -> dict[str, Any]:
    role = "publisher" if name.startswith("pub") else "subscriber"
    sent = record["link_bytes"]["sent"]
    return {
        "schema": 1, "program": ["k8sdds-perftest", "-dataLen", str(record["payload_bytes"])],
        "exit_code": 0, "signal": None, "timed_out": False, "ended_by": "participant", "cpus": [0],
        "interval": {"kind": "measured", "duration_s": record["measured_s"]},
        "cpu_s": record[f"{role}_cpu_percent"] / 100 * record["measured_s"],
        "memory_peak_bytes": record[f"{role}_rss_bytes"],
        "interfaces": {"eth0": dict.fromkeys(("rx_bytes", "rx_packets", "tx_bytes", "tx_packets"), sent)},
        "network": {f"counter_{index}": index * record["order"] for index in range(60)},
    }  # fmt: skip


@cache
def _histogram(step: int) -> str:
    """Return an encoded HdrHistogram whose 90th percentile is about exp(step/20) µs."""
    normal, counts = NormalDist(), Counter[int]()
    center = math.exp(step / 20) * 1000 / math.exp(0.1 * normal.inv_cdf(0.9))
    for index in range(2000):
        slow = 4 if index > 1980 else 1
        value = slow * center * math.exp(0.1 * normal.inv_cdf((index + 0.5) / 2000))
        counts[round(value)] += 30
    return hdr.encode(counts)
