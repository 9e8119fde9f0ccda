"""Declare every measured or derived column of trials.jsonl.

To add a metric, add a line to `Metrics` and set the attribute where the value is measured. The typed record, its
JSON Schema, the tidy table, reports and `k8sdds compare` are all derived from `Metrics`. So are the
tables in docs/reference/run-folder.md, which `make docs` writes.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from k8sdds.results.columns import GROUPS, Metric, column, columns_of, metric

DISTURBED_BY_CAPTURE = ("throughput", "latency", "delay", "buffer delay")
"""Groups of metrics that a packet capture disturbs, so that a trial with `capture` has no value for them."""

SOME_TESTS = "trials of some tests"
"""Of a column that only trials of some tests have: `workloads.declaring` returns them, because a workload declares its
columns."""
LOADED = "trials with `background`"
WITH_SERVER = "trials with `discovery: server`"
PROFILED = "trials with `--profile`"
IMPORTED = "imported trials"
CAPTURED = "trials with `capture`"
PROCESS = "trials with `realtime_priority`, `lock_memory` or `dscp`, and those by shared memory of Zenoh"
TUNED = "trials with `tuning`"
LIMITED = "trials whose pods have a CPU limit"
LINKED = "trials with `link.mtu`, `link.offloads` or `link.lag`"


class Metrics(BaseModel):
    """The measured values of one attempt; None if the workload does not measure the value or it is unknown."""

    model_config = ConfigDict(extra="allow")

    # fmt: off
    network_cpu_percent: float | None = column("CPU", "testbed",
        "CPU time of the network's daemons and agents on the machines of the participants, in percent of one core, over"
        " the whole attempt")
    throughput_mbps: float | None = metric("throughput", "Mbit/s", "throughput", "subscribers",
        "Payload that a subscriber received (1e6 bits per second); mean over subscribers. See `samples_per_s`",
        better="higher", since=2)
    samples_per_s: float | None = metric("samples", "samples/s", "throughput", "subscribers",
        "Samples that a subscriber received per second while all publishers sent: (n - 1) / T for n samples in the T"
        " seconds from the first sample of the publisher that began last to the last sample of the publisher that ended"
        " first; mean over subscribers. RTI PerfTest and versions before schema 2: n / T, from the first to the last"
        " sample of any publisher", better="higher", since=2)
    interval_s: float | None = column("throughput", "subscribers",
        "Length T of the interval of `samples_per_s`; mean over subscribers")
    retransmits: int | None = metric("retransmits", "segments", "throughput", "publisher",
        "Number of TCP segments that the client's kernel sent again in the measured interval, over all flows"
        " (iperf3's `retransmits`)", scale="linear", only=SOME_TESTS)
    transactions_per_s: float | None = metric("transactions", "transactions/s", "throughput", "client",
        "Requests whose responses arrived in the measured interval, per second, over all connections", better="higher",
        only=SOME_TESTS)
    connections_per_s: float | None = metric("connections", "connections/s", "throughput", "client",
        "Connections that were opened, carried a request and a response, and were closed, per second", better="higher",
        only=SOME_TESTS)
    requests_per_s: float | None = metric("requests", "requests/s", "throughput", "client",
        "HTTP requests whose objects arrived in the measured interval, per second, over all connections", better="higher",
        only=SOME_TESTS)
    service_connections: int | None = column("evidence", "testbed",
        "Number of connections that the rule of the measured Service translated on the client's node, the warm-up included;"
        " for a headless Service, of which none may be translated, those that any rule translated",
        only=SOME_TESTS)
    service_tracked: int | None = column("evidence", "testbed",
        "Number of connections to the Service in the connection tracking of the client's node, after the attempt, whose replies come"
        " from the server (clusters); the only evidence if kube-proxy uses nftables or ipvs, whose rules count nothing. Null if"
        " it was not read", only=SOME_TESTS)
    pods_ready_s: float | None = metric("all pods ready", "s", "pod start", "testbed",
        "Time from the request to create the first pod until the last pod was ready", only=SOME_TESTS)
    pod_start_mean_s: float | None = metric("mean pod start", "s", "pod start", "testbed",
        "Time from the request to create a pod until it was ready; mean over the pods. The sum of its three steps",
        only=SOME_TESTS)
    pod_start_p50_s: float | None = metric("p50 pod start", "s", "pod start", "testbed",
        "Median time from the request to create a pod until it was ready", only=SOME_TESTS)
    pod_start_p90_s: float | None = metric("p90 pod start", "s", "pod start", "testbed",
        "90th percentile of the time from the request to create a pod until it was ready", only=SOME_TESTS)
    pod_scheduling_s: float | None = metric("scheduling of a pod", "s", "pod start", "testbed",
        "First step of a start: from the request until the condition `PodScheduled`; mean over the pods", only=SOME_TESTS)
    pod_network_s: float | None = metric("sandbox and network of a pod", "s", "pod start", "testbed",
        "Second step: until the condition `PodReadyToStartContainers`, which a kubelet reports when it has mounted the volumes,"
        " the sandbox runs and the CNI plugin has set up its network; mean over the pods. Null where nodes do not report it. In the"
        " lab: the time in which the CNI plugins add a pod to a node", only=SOME_TESTS)
    pod_containers_s: float | None = metric("containers of a pod", "s", "pod start", "testbed",
        "Third step: until the condition `Ready`; mean over the pods", only=SOME_TESTS)
    pods_matched_s: float | None = metric("two new pods matched over DDS", "s", "pod start", "testbed",
        "Time from the request to create the first of two pods until the data endpoints of a publisher in one and of a subscriber"
        " in the other had matched, by the clock of the machine that runs k8sdds. Null without `dds`", only=SOME_TESTS)
    pods_matching_s: float | None = metric("matching of two ready pods", "s", "pod start", "testbed",
        "Its last part: since both pods were ready. Contains the start of the two programs through the API server", only=SOME_TESTS)
    conntrack_entries: int | None = metric("new conntrack entries", "entries", "throughput", "testbed",
        "Entries in the connection tracking of the client's node after the attempt, minus those before it. An entry remains for"
        " up to 2 minutes after its connection was closed. Null if the node tracks no connections", scale="linear",
        only=SOME_TESTS)
    round_trip_count: int | None = column("latency", "client", "Number of timed round trips", only=SOME_TESTS)
    round_trip_mean_us: float | None = metric("mean round trip", "µs", "latency", "client",
        "Mean time from when a request was sent until its response had arrived", only=SOME_TESTS)
    round_trip_p50_us: float | None = metric("p50 round trip", "µs", "latency", "client", "Median of the round trips",
        only=SOME_TESTS)
    round_trip_p90_us: float | None = metric("p90 round trip", "µs", "latency", "client", "90th percentile of the round trips",
        only=SOME_TESTS)
    round_trip_p99_us: float | None = metric("p99 round trip", "µs", "latency", "client", "99th percentile of the round trips",
        only=SOME_TESTS)
    round_trip_p999_us: float | None = metric("p99.9 round trip", "µs", "latency", "client", "99.9th percentile of the round trips",
        only=SOME_TESTS)
    round_trip_p9999_us: float | None = metric("p99.99 round trip", "µs", "latency", "client", "99.99th percentile of the round trips",
        only=SOME_TESTS)
    round_trip_max_us: float | None = metric("maximum round trip", "µs", "latency", "client", "Longest round trip",
        only=SOME_TESTS)
    stream_jitter_us: float | None = metric("jitter of a stream", "µs", "throughput", "subscribers",
        "Smoothed difference between the transit times of consecutive datagrams (RFC 3550), as iperf3's server reports it at"
        " the end; mean over flows", only=SOME_TESTS)
    measured_s: float | None = column("attempt", "publisher", "Length of the measured interval, as timed by the publisher")
    handshake_s: float | None = metric("time from start until all are matched", "s", "discovery", "participants",
        "Time from the creation of a participant until the last of its data endpoints was matched; the longest time"
        " of all participants. Includes waiting for participants that start later; excludes perftest's announcements")
    fleet_matched_s: float | None = metric("matching of all members", "s", "discovery", "participants",
        "Longest time of a pair of a publishing and a subscribing member of the fleet until one of them had matched the other on all"
        " topics, and the other this one; from when the later member of the pair was to start. Null, with the reason in `missing`, if"
        " members did not match in the trial", only=SOME_TESTS, censored=True)
    fleet_first_s: float | None = metric("first matching of two members", "s", "discovery", "participants",
        "Shortest time of a member until it had matched another one, counted as `fleet_matched_s`", only=SOME_TESTS)
    fleet_p50_s: float | None = metric("median matching of two members", "s", "discovery", "participants",
        "Median of these times. Null if fewer than half of the matches came", only=SOME_TESTS, censored=True)
    unmatched_percent: float | None = metric("missing matches", "%", "discovery", "participants",
        "Share of the matches that did not come in the trial. Each pair has two, one from each side", scale="linear", only=SOME_TESTS)
    fleet_rematched_s: float | None = metric("matching after a change", "s", "discovery", "participants",
        "The same as `fleet_matched_s` of members that started late, or again after they were killed, since they were to"
        " start. Null, with the reason in `missing`, if members did not match; missing without `change`", only=SOME_TESTS, censored=True)
    broken_percent: float | None = metric("broken matches", "%", "discovery", "participants",
        "Share of the matches that no longer held at some time before the last `steady_s`, although both members ran",
        scale="linear", only=SOME_TESTS)
    fleet_returned_s: float | None = metric("return of broken matches", "s", "discovery", "participants",
        "Longest time of one of these matches from when it first broke until it held again for the last time. Null, with the"
        " reason in `missing`, if one did not return; missing if none broke", only=SOME_TESTS, censored=True)
    fleet_packets: float | None = metric("packets of discovery", "packets", "discovery", "participants",
        "Packets that all pods sent before the last `steady_s`. Segments of TCP that a pod passes to the kernel at once are one."
        " Null in the network of a node", scale="linear", only=SOME_TESTS)
    fleet_bytes: float | None = metric("traffic of discovery", "bytes", "discovery", "participants",
        "Bytes of these packets", scale="linear", only=SOME_TESTS)
    fleet_cpu_s: float | None = metric("CPU time of discovery", "s", "discovery", "participants",
        "CPU time of all processes of the fleet before the last `steady_s`, that of processes that were killed included",
        scale="linear", only=SOME_TESTS)
    steady_packets_per_s: float | None = metric("packets of a fleet at rest", "packets/s", "discovery", "participants",
        "Packets that all pods sent in the last `steady_s`, per second. Null in the network of a node, and if a match was"
        " missing before", scale="linear", only=SOME_TESTS)
    steady_cpu_percent: float | None = metric("CPU of a fleet at rest", "% of one core", "discovery", "participants",
        "CPU time of all processes of the fleet in the last `steady_s`, in percent of one core. Null if a match was missing before",
        scale="linear", only=SOME_TESTS)
    member_memory_bytes: float | None = metric("memory of a member", "bytes", "discovery", "participants",
        "Peak resident memory of all processes of the fleet, with the shared libraries of each, divided by their members", only=SOME_TESTS)
    fleet: dict[str, Any] | None = column("discovery", "participants",
        "`members` of the fleet in each role, `created` (how many exist) and `created_s` (when the last of them did); `absent`: the"
        " numbers of members in each role that nobody found; `failures`: why members were not created, with their numbers; how many"
        " matches were `expected`, and how many came (`matched`)", only=SOME_TESTS)
    fleet_kinds: dict[str, Any] | None = column("discovery", "supervisor",
        "Packets that all pods sent, the discovery service included, by what they are for, each with `packets` and `bytes` (with IP"
        " headers): `discovery`, before the last `steady_s`, and `steady`. `participants` (SPDP), `endpoints` (SEDP), `liveliness`,"
        " `other-discovery`, `scouting` and `zenoh`, …: `count-kinds` in the reference of the supervisor. Null on clusters",
        only=SOME_TESTS)
    discovery_s: float | None = metric("discovery and handshake", "s", "discovery", "publisher",
        "Time from the publisher's start until all participants were matched, including discovery and the handshake"
        " of DDS Security")
    sent: int | None = column("samples", "publishers", "Number of samples sent in the measured interval")
    received: int | None = column("samples", "subscribers",
        "Number of samples received in the measured interval, summed over subscribers")
    lost: int | None = column("samples", "subscribers",
        "Number of samples sent in the measured interval that a subscriber did not receive until the end of the test,"
        " summed over subscribers")
    duplicates: int | None = column("samples", "subscribers",
        "Number of samples that a subscriber received again (same publisher and sequence number), summed over"
        " subscribers")
    out_of_order: int | None = metric("stale samples", "samples", "samples", "subscribers",
        "Number of samples that arrived after one with a higher sequence number of the same publisher, so that an application"
        " had a newer one; summed over subscribers. In a topic with a key, samples have an order only within their"
        " instance", scale="linear")
    foreign_samples: int | None = column("samples", "participants",
        "Number of samples on the topics of a trial that no participant of the trial sent, or that were not as announced:"
        " participants ignore them. Null for RTI PerfTest")
    instances_received: int | None = column("samples", "subscribers",
        "Number of instances of a topic with a key of which a subscriber received a sample; the fewest of all pairs of a"
        " subscriber and a publisher. Null without a key, and for RTI PerfTest")
    lost_percent: float | None = metric("loss", "%", "samples", "derived",
        "lost / (sent × subscribers) × 100; lost / (received + lost) × 100 where `sent` is null", scale="linear")
    missing: dict[str, str] | None = column("validity", "derived",
        'Percentiles and times that are null, each with the reason, such as'
        ' `{"delay_p9999_us": "9000 values, 100000 are needed"}`')
    tail_episodes: dict[str, Any] | None = column("validity", "participants",
        "Number of episodes of values above each percentile, such as `{\"delay_p99_us\": 14}`: a stall that delays many"
        " consecutive samples counts once (`k8sdds docs latency`). With several subscribers, the largest number."
        " Null if a program does not keep the order of values, and in records of earlier versions, where 10 values"
        " above a percentile were enough")
    pings: int | None = column("samples", "publisher", "Number of pings that were sent to time round trips")
    pings_unanswered: int | None = column("samples", "publisher", "Number of pings that were not answered")
    pings_unanswered_percent: float | None = metric("unanswered pings", "%", "samples", "publisher",
        "Share of the pings that were not answered. A percentile that the missing latencies could move is null"
        " (`k8sdds docs latency`)", scale="linear")
    latency_count: int | None = column("latency", "publisher", "Number of timed round trips")
    latency_mean_us: float | None = metric("mean latency", "µs", "latency", "publisher",
        "Mean one-way latency (round trip / 2). With a `rate`, a ping that waited for the previous answer counts from"
        " when it was due")
    latency_min_us: float | None = column("latency", "publisher", "Minimum one-way latency", only=IMPORTED)
    latency_p50_us: float | None = metric("p50 latency", "µs", "latency", "publisher",
        "Median one-way latency. A percentile is null if fewer than 10 episodes of values are above it; `missing` has"
        " the reason")
    latency_p90_us: float | None = metric("p90 latency", "µs", "latency", "publisher",
        "90th percentile of the one-way latency")
    latency_p99_us: float | None = metric("p99 latency", "µs", "latency", "publisher",
        "99th percentile of the one-way latency")
    latency_p999_us: float | None = metric("p99.9 latency", "µs", "latency", "publisher",
        "99.9th percentile of the one-way latency")
    latency_p9999_us: float | None = metric("p99.99 latency", "µs", "latency", "publisher",
        "99.99th percentile of the one-way latency")
    latency_max_us: float | None = metric("maximum latency", "µs", "latency", "publisher",
        "Maximum one-way latency")
    latency_std_us: float | None = column("latency", "publisher",
        "Standard deviation of the one-way latency", only=IMPORTED)
    delay_method: str | None = column("delay", "subscribers",
        "How delays were measured: one-way at each subscriber, from when the sample was due, by a `shared clock` or by"
        " `synchronized clocks` of several machines; or as `round trip / 2` at the publisher")
    clock_error_us: float | None = column("delay", "testbed",
        "How far the clocks of a publisher's and a subscriber's machine could differ, in µs: the sum of the bounds that"
        " chrony or ptp4l reported for both, before or after the trial, whichever is larger; null if it is unknown, or"
        " if the clock is shared")
    delay_by_subscriber: dict[str, Any] | None = column("delay", "subscribers",
        "`received`, `lost`, `missed` (deadlines), `jitter_us`, `count`, `mean_us`, `p50_us` to `p9999_us` and `max_us`"
        " of each subscriber; also its `blind_ms`, `gaps`, `age_mean_us`, `age_p99_us` and `age_max_us`")
    by_flow: dict[str, Any] | None = column("delay", "participants",
        "What was measured of each flow of a graph: its metrics as in this record (`sent`, `lost_percent`, `delay_p90_us`, …),"
        " its `publisher`, the delays of its `chain` (`of_flows`) from when its origin was due, and the `received`, `lost` and `missed`"
        " samples of each of its `subscribers`. `sent` of a `chain` are the samples to which its origin leads, `lost` those"
        " that were lost or not sent at any flow of it. Delays of all flows together are null, and what publishers and"
        " subscribers used: most nodes are both", only=SOME_TESTS)
    by_node: dict[str, Any] | None = column("CPU", "supervisor",
        "What each node of a graph used in the measured interval: its `machine` (a node of the testbed), `cpu_percent` of one"
        " core without the time that it spun until samples were due, `cores_percent` (the same of all nodes on its cores, in percent of these), `throttled_percent` (time for which its quota stopped"
        " it), `rss_bytes` (peak), `sent_mbps` and `received_mbps` of its pod with headers, and the `packets`, `interface_drops`, UDP `datagrams` received, `receive_buffer_errors` and"
        " `send_buffer_errors` of its pod, with the network `host` those of the machine; null: unknown", only=SOME_TESTS)
    delay_count: int | None = column("delay", "subscribers", "Number of measured delays, over all subscribers")
    delay_mean_us: float | None = metric("mean delay", "µs", "delay", "subscribers",
        "Mean delay from when a sample was due by the offered rate until the subscriber had it; all subscribers")
    delay_p50_us: float | None = metric("p50 delay", "µs", "delay", "subscribers", "Median delay")
    delay_p90_us: float | None = metric("p90 delay", "µs", "delay", "subscribers",
        "90th percentile of the delay from when a sample was due until a subscriber had it")
    delay_p99_us: float | None = metric("p99 delay", "µs", "delay", "subscribers", "99th percentile of the delay")
    delay_p999_us: float | None = metric("p99.9 delay", "µs", "delay", "subscribers", "99.9th percentile of the delay")
    delay_p9999_us: float | None = metric("p99.99 delay", "µs", "delay", "subscribers",
        "99.99th percentile of the delay")
    delay_max_us: float | None = metric("maximum delay", "µs", "delay", "subscribers", "Maximum delay")
    delay_jitter_us: float | None = metric("jitter", "µs", "delay", "subscribers",
        "Mean absolute difference between the delays of consecutive samples (the quantity that RFC 3550 smooths); mean"
        " over subscribers")
    deadline_missed: int | None = column("delay", "subscribers",
        "Number of scheduled samples that a subscriber did not get within the deadline, summed over subscribers")
    deadline_missed_percent: float | None = metric("missed deadlines", "%", "delay", "subscribers",
        "Share of the scheduled samples that a subscriber did not get within the deadline after they were due,"
        " including lost and unsent ones; all subscribers", scale="linear")
    age_mean_us: float | None = metric("mean age", "µs", "delay", "subscribers",
        "Age of information: how long ago the newest sample that a subscriber had was due, averaged over the time of the measured"
        " interval; lost samples and stalls count in full. Of the publisher and the subscriber with the highest. Null if delays are"
        " round trips (`k8sdds docs latency`)")
    age_p99_us: float | None = metric("p99 age", "µs", "delay", "subscribers",
        "Age that the newest sample exceeded for 1 % of the time; of the publisher and the subscriber with the highest")
    age_max_us: float | None = metric("maximum age", "µs", "delay", "subscribers",
        "Highest age of the newest sample; of all publishers and subscribers")
    blind_ms: float | None = metric("blind", "ms", "delay", "subscribers",
        "Longest time in which a subscriber got no fresh sample of a publisher, which is one that was due later than all before;"
        " from the start of the measured interval to its end, by the subscriber's clock. Of all publishers and subscribers")
    gaps: int | None = metric("gaps above the deadline", "gaps", "delay", "subscribers",
        "Number of times without a fresh sample that were longer than `deadline_ms`, summed over publishers and subscribers. Null"
        " without `deadline_ms`: jitter alone would exceed the default of one period", scale="linear")
    outage_s: float | None = column("delay", "testbed", "Observed length of the outage", only=SOME_TESTS)
    outage_observed_ms: float | None = column("delay", "derived",
        "Time from the repair to the end of the measured interval: times of the recovery that are null are longer", only=SOME_TESTS)
    outage_blind_ms: float | None = metric("blind in the outage", "ms", "delay", "subscribers",
        "Longest time from the failure on without a fresh sample that was due after it, which began before the repair. Of the publisher"
        " and the subscriber with the longest. Null, with the reason in `missing`, if no such sample follows in one of them",
        only=SOME_TESTS, censored=True)
    recovery_first_ms: float | None = metric("first sample after the repair", "ms", "delay", "subscribers",
        "Time from the repair to the first fresh sample, however old it is. Null, with the reason in `missing`, if a subscriber got"
        " none", only=SOME_TESTS, censored=True)
    recovery_full_ms: float | None = metric("recovery", "ms", "delay", "subscribers",
        "Time from the repair until samples arrive as before the failure: with 90 % of the rate, and at most one period later than"
        " 99 % of the samples before, for 0.5 s or 10 periods. Null, with the reason in `missing`, if a subscriber did not recover"
        " within the measured interval: then no mean of the cell's other repetitions is stated, because it would be that of the"
        " fastest", only=SOME_TESTS, censored=True)
    recovered_percent: float | None = metric("recovered", "%", "delay", "subscribers",
        "Share of the pairs of publishers and subscribers that recovered within the measured interval", better="higher",
        scale="linear", only=SOME_TESTS)
    recovery_bytes: float | None = metric("traffic of the recovery", "bytes", "delay", "testbed",
        "Bytes that the link of the node with the outage carried from the repair until the full rate had lasted, above the usual,"
        " both ways: samples that were sent again, and discovery. Null as `recovery_full_ms`", scale="linear", only=SOME_TESTS,
        censored=True)
    outage_late: int | None = metric("late samples of the outage", "samples", "delay", "subscribers",
        "Samples that arrived later than `deadline_ms` after they were due, from the failure on; all subscribers", scale="linear",
        only=SOME_TESTS)
    scheduled: int | None = column("delay", "publishers", "Number of samples that were due in the measured interval")
    late: int | None = column("delay", "publishers",
        "Number of samples that a publisher wrote more than one period after they were due")
    achieved_rate_percent: float | None = metric("achieved rate", "% of the offered rate", "delay", "publishers",
        "Samples that were sent, as a share of the samples that were due: in a throughput test, `rate` × the measured"
        " interval of each publisher. A deviation above 2 % is a warning", better="higher", scale="linear")
    undelivered_percent: float | None = metric("undelivered samples", "%", "samples", "derived",
        "Share of the samples due in the measured interval that the worst subscriber did not receive, whether they were lost"
        " or not sent. Null in the first trial of a search, which has no rate", scale="linear", only=SOME_TESTS)
    overdue_percent: float | None = metric("overdue samples", "%", "delay", "derived",
        "Share of the delays of all subscribers that are longer than `p99_ms`", scale="linear", only=SOME_TESTS)
    loaded_latency_count: int | None = column("buffer delay", "publisher", "Number of timed round trips")
    loaded_latency_p50_us: float | None = metric("p50 buffer delay", "µs", "buffer delay", "publisher",
        "Median of half the round trip of some samples of a throughput test. An unlimited publisher keeps all queues"
        " full, so that this is the depth of the buffers divided by the rate, and not a latency that an application"
        " has at its own rate; `test: paced` measures that one")
    loaded_latency_p90_us: float | None = metric("p90 buffer delay", "µs", "buffer delay", "publisher",
        "90th percentile of the same")
    publisher_cpu_percent: float | None = metric("publisher CPU", "% of one core", "CPU", "supervisor",
        "CPU time of a publisher's pod in the measured interval (its cgroup, or the processes in /proc without one;"
        " includes the supervisor), in percent of one core; mean over publishers")
    publisher_cpu_interval_s: float | None = column("CPU", "supervisor",
        "Time between the two readings of a publisher's CPU time, at the start and the end of its measured interval; mean"
        " over publishers. A deviation of more than 2 % from the interval of the samples is a warning")
    node_cpu_percent: float | None = metric("CPU of the busiest node", "% of one core", "CPU", "derived",
        "CPU time of the node that used most, in the measured interval: the sum of the parts in `nodes_cpu`, in percent of one"
        " core", since=4)
    nodes_cpu: dict[str, Any] | None = column("CPU", "supervisor",
        "CPU time by node, in percent of one core: `participants` (the sum over its publishers and subscribers, without"
        " `pacer_cpu_percent`) and `shared` (softirqs and threads of the kernel on its machine, and the network's daemons; nodes"
        " that share a machine have parts in proportion to their participants). In the lab, `participants` contains the discovery"
        " service, on clusters `shared` does. Softirqs that the kernel charges to a"
        " participant count once. Missing if a participant has no meters")
    total_cpu_percent: float | None = metric("CPU of all nodes", "% of one core", "CPU", "derived",
        "What the trial cost in the measured interval: the sum of `nodes_cpu` over all nodes, in percent of one core. The"
        " threads of the kernel and the network's daemons are metered over the whole attempt", since=4)
    throttled_periods_percent: float | None = metric("throttled periods", "%", "CPU", "supervisor",
        "Share of the periods of its CPU limit in which the kernel stopped a participant until the next one; that of the participant"
        " with the largest share", scale="linear", only=LIMITED, since=5)
    stopped_percent: float | None = metric("time in stops", "%", "CPU", "testbed",
        "Share of the measured interval of a paced test in which the CPU limit stopped a subscriber or one of its publishers; mean"
        " over subscribers. The position of each stop is known to within 1 ms. Null on clusters, and if participants run on all cores",
        scale="linear", only=LIMITED, since=5)
    slow_stopped_percent: float | None = metric("slow samples in stops", "%", "CPU", "testbed",
        "Of the samples above the 99th percentile of the delays, the share that was under way while the CPU limit stopped their"
        " publisher or subscriber. Compare it with `slow_stopped_by_chance_percent`", scale="linear", only=LIMITED, since=5)
    slow_stopped_by_chance_percent: float | None = metric("slow samples in stops by chance", "%", "CPU", "derived",
        "The share of samples with the same delays that would be, if they were due at random times: the longer a sample takes, the more"
        " likely it meets a stop", scale="linear", only=LIMITED, since=5)
    throttling: dict[str, Any] | None = column("CPU", "supervisor",
        "How the CPU limit of each participant's pod stopped it in its measured interval: `periods` of the limit,"
        " `throttled_periods`, `throttled_s` (summed over cores), and by the kernel's PSI `pressure_some_s` and `pressure_full_s`, in"
        " which some or all of its threads that could run waited for a CPU (null without PSI or cgroup v2)", only=LIMITED)
    pacer_cpu_percent: float | None = column("CPU", "publishers",
        "Time that a publisher with a rate spun until samples were due, in percent of its measured interval; mean over"
        " publishers. It is a part of `publisher_cpu_percent`, but not of `nodes_cpu`")
    publisher_rss_bytes: int | None = metric("publisher memory", "bytes", "memory", "supervisor",
        "Peak resident memory of a publisher's process since its start (VmHWM); mean over publishers")
    subscriber_cpu_percent: float | None = metric("subscriber CPU", "% of one core", "CPU", "supervisor",
        "CPU time of a subscriber's pod in the measured interval, from the same source, in percent of one core; mean"
        " over subscribers")
    subscriber_cpu_interval_s: float | None = column("CPU", "supervisor",
        "The same for a subscriber, at its first sample and after its last one; mean over subscribers")
    subscriber_rss_bytes: int | None = metric("subscriber memory", "bytes", "memory", "supervisor",
        "Peak resident memory of a subscriber's process since its start (VmHWM); mean over subscribers")
    service_cpu_percent: float | None = metric("CPU of the discovery service", "% of one core", "CPU", "supervisor",
        "CPU time of the discovery service's pods, in percent of one core: that of the attempt divided by warm-up and"
        " measured interval (on clusters: by the attempt). With Zenoh, it is the router, which all samples pass. It is a part of `nodes_cpu`", only=WITH_SERVER, since=5)
    total_rss_bytes: int | None = metric("memory of all participants", "bytes", "memory", "supervisor",
        "Peak resident memory of the processes of all publishers and subscribers (VmHWM), summed; null if one is unknown",
        since=5)
    service_rss_bytes: int | None = metric("memory of the discovery service", "bytes", "memory", "supervisor",
        "Peak resident memory of the discovery service's processes (VmHWM), summed; null on clusters or if one is unknown",
        only=WITH_SERVER, since=5)
    service_network_bytes: int | None = column("evidence", "supervisor",
        "Bytes that the interfaces of the discovery service's pods received and sent in the attempt, summed; null on clusters",
        only=WITH_SERVER)
    publisher_host_cpu_percent: float | None = metric("publisher CPU", "% of all cores", "CPU", "publisher",
        "CPU usage that RTI PerfTest or performance_test printed for the publisher, in percent of all cores", only=IMPORTED)
    subscriber_host_cpu_percent: float | None = metric("subscriber CPU", "% of all cores", "CPU", "subscribers",
        "CPU usage that the same programs printed for a subscriber, in percent of all cores; mean over subscribers",
        only=IMPORTED)
    machine_cpu_percent: float | None = metric("machine CPU", "% of all cores", "CPU", "supervisor",
        "Busy time (user, nice, system, irq and softirq in /proc/stat) of the first publisher's whole machine in the"
        " measured interval, in percent of all its cores")
    softirq_percent: float | None = metric("softirq CPU", "% of all cores", "CPU", "supervisor",
        "CPU time spent in softirqs (forwarding, encapsulation) on the same machine in the measured interval, in"
        " percent of all cores; included in the busy time",
        scale="linear")
    publisher_cpu_us_per_sample: float | None = metric("publisher CPU per sample", "µs", "cost", "derived",
        "CPU time of the publishers' pods in the measured interval per sample sent in it")
    subscriber_cpu_us_per_sample: float | None = metric("subscriber CPU per sample", "µs", "cost", "derived",
        "CPU time of the subscribers' pods in the measured interval per sample received in it")
    publisher_cpu_ms_per_mb: float | None = metric("publisher CPU per delivered MB", "ms/MB", "cost", "derived",
        "CPU time of the publishers' pods per megabyte (1e6 bytes) of payload delivered to all subscribers")
    subscriber_cpu_ms_per_mb: float | None = metric("subscriber CPU per delivered MB", "ms/MB", "cost", "derived",
        "CPU time of all subscribers' pods per megabyte of payload delivered to all subscribers")
    machine_cpu_ms_per_mb: float | None = metric("machine CPU per delivered MB", "ms/MB", "cost", "derived",
        "Busy time of the whole machine per megabyte of payload delivered to all subscribers; includes the"
        " network's work outside of pods, such as IPsec. Null if participants run on several machines")
    wire_bytes_per_payload_byte: float | None = metric("bytes on the wire per payload byte", "B/B", "cost", "derived",
        "Bytes that the publishers' nodes sent on their links (on clusters: their pods, before the network adds headers)"
        " during the whole attempt, including discovery, warm-up and acknowledgments, per byte of payload delivered in the"
        " warm-up and the measured interval. With unicast, the copy for each subscriber counts on both sides")
    retransmitted_bytes_per_payload_byte: float | None = metric("retransmitted bytes per payload byte", "B/B", "cost",
        "publishers", "Bytes that publishers sent again because a subscriber missed them, since the measured interval began and with"
        " the middleware's headers, per byte of payload delivered to all subscribers in it. Null if the middleware does not count"
        " them: only Cyclone DDS does", scale="linear")
    link_engine: dict[str, Any] | None = column("evidence", "testbed",
        "How `k8sdds-link` ran: the `seed` of its random decisions (on a cluster that of the first node, of each further one 1 more), its `core` (null: any), and whether participants run on this"
        " core, too (`measured_core`). Null without it")
    link_conditions: dict[str, Any] | None = column("evidence", "testbed",
        "What `k8sdds-link` or netem did to the packets of each node's link, `up` (from the node) and `down`: number of `packets`; `lost` ones,"
        " among so many `decided` ones, in `bursts` of `burst_mean_packets`; `queue_drops`; the number of `outages` that began in the measured interval,"
        " with each fall of the rate before one, and their length in it, `outage_s`; `outage_drops` and what was"
        " `not_forwarded` because the machine was busy or (`overflow`) too many were on the way; those that were"
        " `oversized`, above the MTU; `duplicated` and `reordered` packets; the delays of the packets themselves,"
        " and the 99th percentile of their error; and the rate that was achieved while packets waited. netem counts packets (copies, too), lost ones and those that the"
        " queue dropped; the others are null. Null without such links")
    link_bytes: dict[str, Any] | None = column("evidence", "testbed",
        "Evidence that the samples crossed the network: bytes that the publishers' nodes `sent` and that each"
        " subscriber's node `received` on their links, and the number of `delivered_samples`. Tests of other programs"
        " than a middleware, and those with a `schedule`, have `delivered_bytes`, the payload by the participant that received it. For encrypting networks,"
        " `decrypted` contains the bytes that each subscriber's node received through tunnels. For pod networks on"
        " clusters, `carried` contains the bytes that each subscriber's node received through the network's own"
        " interfaces. With `placement: same-node`, `sent` and `received` are those of the participants' own interfaces,"
        " and `uplink` is what the link between their node and others carried in both directions. With"
        " `link.lag`, `members` contains the bytes that each member of the link of a publisher's node sent")
    drops: dict[str, int | None] | None = column("evidence", "supervisor",
        "`udp_receive_buffer_errors`, `udp_send_buffer_errors`, `ip_reassembly_fails` (the kernel's counters"
        " `RcvbufErrors`, `SndbufErrors`, `ReasmFails`) and `interface_drops` (packets that the pods' interfaces"
        " dropped), in the measured interval and summed over participants")
    ip_fragments_created: int | None = column("evidence", "supervisor",
        "Number of IP fragments that the publishers' pods created in the measured interval (the kernel's counter"
        " `FragCreates`); on a network without pod namespaces, all IP fragments of their nodes. Fragments of"
        " encapsulated packets do not count")
    ip_fragments_per_sent_sample: float | None = metric("IP fragments per sent sample", "packets", "evidence",
        "derived", "`ip_fragments_created` per sample that the publishers sent; 0 if IP did not fragment them",
        scale="linear")
    ip_fragments_per_sample: int | None = metric("IP fragments of a sample", "packets", "evidence", "capture",
        "Number of IP fragments per complete sample on the publisher's link, counted in"
        " `raw/TRIAL_ID/ATTEMPT/capture.pcap`. The latencies and rates of these trials are null",
        scale="exact", only=CAPTURED)
    background_load: dict[str, Any] | None = column("evidence", "participants",
        "What the background did in the `interval_s` around the measured interval: payload that its flows sent and received"
        " (`sent_mbps`, `received_mbps`, `sent_percent` of the requested rate), `cpu_percent` of one core that the"
        " pod of the sender and of stress-ng used, and for each busy core N what stress-ng used of it (`cpuN_percent`)",
        only=LOADED)
    profile: dict[str, Any] | None = column("evidence", "perf",
        "Where the CPU time of the measured interval went: `event` (`cycles`, or `cpu-clock` where the machine has no"
        " PMU), `hertz` (samples per second and core), `samples`, `cpu_s`, `other_programs_cpu_s` (of other programs,"
        " not included), `packets` on the publishers' interfaces, `attributed_percent` (share that belongs to a"
        " component), and for each of `components` its `percent`, `cpu_ms`, `ns_per_packet` and `cycles_per_packet`."
        " All metrics of these trials are null", only=PROFILED)
    # fmt: on


METRICS: dict[str, Metric] = {
    column.name: column
    for column in sorted(columns_of(Metrics).values(), key=lambda column: GROUPS.index(column.group))
    if isinstance(column, Metric)
}
"""The metrics that reports show, in the order of GROUPS. A workload sets only the metrics that it measures."""
