"""Decide whether an attempt is valid: what it measured counts only if it ran, and crossed the network, as requested."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from k8sdds import middleware, workloads
from k8sdds.analysis import link_conditions
from k8sdds.analysis import profile as profiles
from k8sdds.analysis.profile import Profile
from k8sdds.campaign import background, memory_path
from k8sdds.model.ip_families import (
    ETHERNET_HEADER_BYTES,
    IP_AND_UDP_HEADERS_BYTES,
    TCP_HEADER_BYTES,
    UDP_HEADER_BYTES,
)
from k8sdds.model.reason import NO_MATCH, NO_SAMPLES, PART_FAILED, PEER_LOST, Reason
from k8sdds.model.trial import DISCOVERY_SERVER, SUBSCRIBER
from k8sdds.perftest import output
from k8sdds.system import processes, reading
from k8sdds.workloads import TrialOutputs

MULTICAST_COPIES = 1.5
"""Multicast packets per sample and fragment that still count as one send to all, resent samples included."""

MULTICAST_SLACK_BYTES = 100_000
"""Multicast of discovery and heartbeats that is not counted as samples."""

LOCAL_SLACK_BYTES = 100_000
"""What a pod may receive from each subscriber on its node, itself included, without the network: discovery."""

UPLINK_SHARE, UPLINK_SLACK_BYTES = 0.5, 1_000_000
"""What the link to other nodes may carry while all participants are on one node: less than the samples, and what a node
of a cluster exchanges anyway."""


def reason(outputs: TrialOutputs, profile: Profile | Reason | None = None) -> Reason | None:
    """Return why an attempt is not valid, or None if it is.

    `profile` is that of a trial with a profile, or why there is none.
    """
    failed = _failed(outputs)
    if failed is None:
        wrong = _no_report(outputs) or _nothing_received(outputs) or _not_verified(outputs)
    elif _is_loss(failed, outputs):
        wrong = _no_report(outputs) or _not_lost(outputs) or _not_verified(outputs)
    else:
        # What the summaries, counters and meters of a failed participant contain depends on when it failed.
        wrong = _other_links(outputs) if accepted_failure(outputs) else failed
    return (
        wrong
        or (_not_captured(outputs) if outputs.trial.cell.capture else None)
        or (profile if isinstance(profile, Reason) else None)
    )


def accepted_failure(outputs: TrialOutputs) -> Reason | None:
    """Return the failure of participants that is the result of the trial; None if there is none."""
    workload, failed = workloads.find(outputs.trial.cell.test), _failed(outputs)
    is_result = failed and (
        _is_loss(failed, outputs)
        or workload.is_result(failed, outputs)
        or memory_path.is_result(failed, outputs)
    )
    return failed if is_result else None


def _is_loss(failed: Reason, outputs: TrialOutputs) -> bool:
    """Return whether participants ended in order and got no sample, of which links or publishers were to lose some.

    If an outage test got no sample before the outage, there is nothing to which a recovery could be compared.
    """
    cell = outputs.trial.cell
    if failed.code != NO_SAMPLES or workloads.find(cell.test).interrupts_links:
        return False
    may_lose = cell.link.loses_packets or _publishers_drop(outputs)
    return may_lose and all(summary["sent"] for summary in outputs.publishers)


def _publishers_drop(outputs: TrialOutputs) -> bool:
    implementation = middleware.of(outputs.trial.cell)
    return implementation is not None and implementation.drops(outputs.trial.cell)


_CONSEQUENCES = {PEER_LOST: 2, NO_MATCH: 2, NO_SAMPLES: 3}
"""Rank of the failures that another participant can have caused. Those that got no sample ended in order."""


def _failed(outputs: TrialOutputs) -> Reason | None:
    """Return the first cause among failed participants: a failure without its peer is a consequence, not a cause."""
    program = middleware.program_of(outputs.trial.cell)
    loads = [load.name for load in outputs.trial.cell.loads]
    failures = []
    for name, outcome in outputs.measurement.outcomes.items():
        # Too much memory is a failure of what is measured.
        if outcome.lost and outcome.exit_code != output.OUT_OF_MEMORY:
            failures.append((0, Reason(PART_FAILED, f"{name}: {outcome.lost}")))
        # If none was started, all have the same message, and the background need not be the cause.
        elif name in loads and outcome.exit_code not in (0, output.NOT_STARTED):
            why = outcome.message or background.error(outputs, name)
            failures.append((0, Reason("background", f"{name}: {why}")))
        elif outcome.exit_code:
            details = outcome.message or outcome.lost or program.error(outputs.folder / name)
            failure = output.failure(outcome.exit_code, details, program.exit_reasons)
            # A supervisor that is stopped at its barrier has nothing to report.
            unexplained = outcome.exit_code == output.NOT_STARTED and not outcome.message
            killed = processes.was_killed(outcome.exit_code) or unexplained
            rank = 0 if killed else _CONSEQUENCES.get(failure.code, 1)
            code = PART_FAILED if killed else failure.code
            failures.append((rank, Reason(code, f"{name}: {failure.text}")))
    return min(failures)[1] if failures else None


def _not_lost(outputs: TrialOutputs) -> Reason | None:
    """Check that the emulated links lost packets of an attempt in which a participant got no sample.

    Without such losses, publishers that may drop samples must have dropped all samples of this participant.
    """
    if _links_lost(outputs):
        return None
    if _publishers_drop(outputs) and _dropped_parts(outputs):
        return None
    return Reason(NO_SAMPLES, "a participant got no sample, and no link is known to have lost packets")


def _links_lost(outputs: TrialOutputs) -> bool:
    ways = [way for node in (outputs.measurement.links or {}).values() for way in node.values()]
    return any(way["lost"] or way["outage_drops"] for way in ways)


def _silent_flow(outputs: TrialOutputs) -> Reason | None:
    """Check that each node of a graph got samples of each flow that was sent, unless links lost some."""
    nodes = outputs.trial.cell.graph_nodes
    if not nodes or _links_lost(outputs):
        return None
    for participant, summary in outputs.summaries.items():
        for entry in (summary["flows"] or ()) if summary is not None else ():
            if entry["role"] == SUBSCRIBER and entry["lost"] and not entry["received"]:
                what = f"{nodes[participant].name} got no sample of {entry['flow']}"
                return Reason(NO_SAMPLES, f"{what}, and no link is known to have lost packets")
    return None


def _dropped_parts(outputs: TrialOutputs) -> bool:
    """Return whether publishers provably dropped all samples for the subscribers that got none.

    Parts of samples, more than discovery sends, reached the pod of each such subscriber, so that its connection worked.
    The pods of the publishers sent less than the samples that others received and those written for these subscribers.
    A router passes only whole samples on: if it has some for others, nothing shows why these subscribers got none.
    """
    cell, implementation = outputs.trial.cell, middleware.of(outputs.trial.cell)
    relays = bool(implementation and implementation.relays(cell))
    received = {it: outputs.delivered_bytes(it) or 0 for it in outputs.summaries_of(SUBSCRIBER)}
    silent = [subscriber for subscriber, delivered in received.items() if not delivered]
    each_sent = [outputs.pod_bytes(it, "tx_bytes") for it in cell.participants if it.publishes]
    delivered, sent = sum(received.values()), sum(filter(None, each_sent))
    if not silent or None in each_sent or (relays and delivered):
        return False
    written = sum(map(outputs.sent_bytes, outputs.publishers))
    arrived = [sent] if relays else [outputs.pod_bytes(it, "rx_bytes") or 0 for it in silent]
    is_part = all(LOCAL_SLACK_BYTES < part < written for part in arrived)
    return is_part and sent < delivered + written * (1 if relays else len(silent))


def _no_report(outputs: TrialOutputs) -> Reason | None:
    """Check that all participants reported, and name the error that a tool reported although it exited normally.

    iperf3 does so. Clients come first: a server may also report that it was stopped.
    """
    if None not in outputs.summaries.values():
        return None
    what, cell = "a participant exited normally without a complete summary", outputs.trial.cell
    program = middleware.program_of(cell)
    errors = (program.error(outputs.folder / participant.name) for participant in outputs.summaries)
    error = "" if middleware.of(cell) else next(filter(None, errors), "")
    return Reason("no-report", f"{what}: {error}" if error else what)


def _nothing_received(outputs: TrialOutputs) -> Reason | None:
    """Check that samples arrived, and what their test needs of them."""
    workload = workloads.find(outputs.trial.cell.test)
    received = any(outputs.delivered_bytes(participant) for participant in outputs.summaries)
    if not received and not workload.starts_fleets:
        return Reason(NO_SAMPLES, "nothing was received")
    return workload.invalid(outputs)


def _not_verified(outputs: TrialOutputs) -> Reason | None:
    """Return why an attempt in which all participants ended in order is not valid, or None."""
    return (
        _lost_samples(outputs)
        or _silent_flow(outputs)
        or _other_links(outputs)
        or (_not_on_network(outputs) if outputs.trial.cell.uses_network else memory_path.invalid(outputs))
        or _not_as_requested(outputs)
        or background.invalid(outputs)
    )


def _lost_samples(outputs: TrialOutputs) -> Reason | None:
    """Check that a reliable trial lost no sample, and that samples of each instance of a topic with a key arrived.

    With `max_loss_percent: 100`, a loss over impaired links is a result. A writer that keeps the last samples replaces
    those that a link held up: how many is the question.
    """
    cell = outputs.trial.cell
    if cell.reliability != "reliable" or not middleware.of(cell):
        return None
    if outputs.trial.may_lose or workloads.find(cell.test).loss_is_result:
        return None
    if lost := sum(summary["lost"] or 0 for summary in outputs.subscribers):
        return Reason("lost-samples", f"{lost} samples of a reliable trial did not arrive")
    written = min([cell.instances, *(summary["sent"] or 0 for summary in outputs.publishers)])
    for participant, summary in outputs.summaries_of(SUBSCRIBER).items():
        received = (summary["instances"] or {}).get("received")
        if received is not None and received < written:
            return Reason(
                "missing-instances", f"{participant} received samples of {received} of {written} instances"
            )
    return None


def _other_links(outputs: TrialOutputs) -> Reason | None:
    """Check that the emulated links did what was requested."""
    link, seen = outputs.trial.cell.link, outputs.measurement.links
    if seen is None:
        needed = link.engine != "auto" and outputs.trial.cell.crosses_links
        return Reason("no-proof", "the statistics of the links were not read") if needed else None
    why = link_conditions.differing(link, seen, outputs.trial.duration_s)
    return Reason("link", why) if why else None


def _not_on_network(outputs: TrialOutputs) -> Reason | None:
    """Check that the links carried at least what was delivered, and the network's own links what the pods received.

    No shared memory, no shortcut. Traffic of others adds to the counters, so these are lower bounds.
    """
    measurement = outputs.measurement
    for participant in outputs.summaries:
        delivered = outputs.crossing_bytes(participant)
        if delivered is None:
            continue
        name = participant.name
        on_link = measurement.received_bytes.get(name)
        if on_link is None:
            return Reason("no-proof", f"the link of {name}'s node was not read")
        if on_link < delivered:
            return Reason(
                "not-on-wire", f"{name} got {delivered} bytes of samples, its node's link only {on_link}"
            )
    for names, arrived in _arrived_bytes(outputs).items():
        for counters, code, links in (
            (measurement.carried_bytes, "not-on-network", "the network's links"),
            (measurement.decrypted_bytes, "not-encrypted", "the tunnels"),
        ):
            carried = (counters or {}).get(names[0])
            if carried is not None and carried < arrived:
                what = f"{', '.join(names)} got {arrived} bytes, {links} of the node only {carried}"
                return Reason(code, what)
    return _not_on_node(outputs) or _wrong_transport(outputs)


def _arrived_bytes(outputs: TrialOutputs) -> dict[tuple[str, ...], int]:
    """Return the fewest bytes that crossed the links of each node for its receivers, by their names.

    Unicast packets cross them once for each receiver on the node; multicast packets once, and those to a router on the
    node that forwards them to all receivers. What receivers on the node send by multicast, such as answers to pings,
    reaches the others there without crossing the links. Ethernet, IP and UDP or TCP headers of each packet do not
    count: offloads change how often headers are counted, and tunnels do not count Ethernet's.
    """
    cell, measurement = outputs.trial.cell, outputs.measurement
    implementation = middleware.of(cell)
    headers = ETHERNET_HEADER_BYTES + IP_AND_UDP_HEADERS_BYTES[cell.ip_family]
    if implementation and implementation.tcp:
        headers += TCP_HEADER_BYTES - UDP_HEADER_BYTES
    relays = bool(implementation and implementation.relays(cell))
    # On clusters, it is unknown here where the router is.
    router: Hashable = measurement.nodes.get(DISCOVERY_SERVER.name)
    on_node: dict[Hashable, dict[str, int]] = defaultdict(dict)
    for participant in outputs.summaries:
        delivered = outputs.crossing_bytes(participant)
        if delivered is not None:
            node = measurement.nodes.get(participant.name, participant.name)
            on_node[node][participant.name] = delivered

    def in_packets(name: str, way: str) -> int:
        interfaces = outputs.meters.get(name, {}).get("attempt_interfaces") or {}
        seen = interfaces.get(measurement.outcomes[name].interface)
        return int(seen[f"{way}_bytes"] - headers * seen[f"{way}_packets"]) if seen else 0

    arrived = {}
    for where, receivers in on_node.items():
        sent = {name: in_packets(name, "tx") for name in receivers if cell.transport == "multicast"}
        for name in receivers:
            # What a node of a graph gets from others on its own node of the testbed is in no counter of its own.
            if implementation and not cell.graph:
                local = sum(sent.values()) - sent.get(name, 0) + LOCAL_SLACK_BYTES * len(receivers)
                receivers[name] = max(receivers[name], in_packets(name, "rx") - local)
        once = max(receivers.values())
        copied = cell.transport == "unicast" and not (relays and router in (None, where))
        arrived[tuple(receivers)] = sum(receivers.values()) if copied else once
    return arrived


def _not_on_node(outputs: TrialOutputs) -> Reason | None:
    """Check that the link between nodes carried none of the samples of participants on one node."""
    uplink_bytes = outputs.measurement.uplink_bytes
    if uplink_bytes is None:
        return None
    delivered = sum(outputs.delivered_bytes(participant) or 0 for participant in outputs.summaries)
    if uplink_bytes > max(delivered * UPLINK_SHARE, UPLINK_SLACK_BYTES):
        return Reason("not-on-node", f"the link to other nodes carried {uplink_bytes} bytes")
    return None


def _wrong_transport(outputs: TrialOutputs) -> Reason | None:
    """Check that samples left the publisher as multicast, once for all subscribers, or as unicast."""
    cell = outputs.trial.cell
    if workloads.find(cell.test).starts_fleets:
        return None
    publishing = cell.publishing
    for participant, summary in outputs.summaries.items():
        if participant not in publishing:
            continue
        network = outputs.meters_of(participant).get("network")
        if summary is None or not isinstance(network, dict) or network.get("ip_out_mcast_bytes") is None:
            return Reason("no-proof", f"the counters of {participant} were not read")
        multicast = network["ip_out_mcast_bytes"]
        payload = outputs.sent_bytes(summary)
        if cell.transport == "unicast" and multicast > max(payload // 2, MULTICAST_SLACK_BYTES):
            return Reason(
                "not-on-wire", f"{participant} sent {multicast} bytes as multicast in a unicast trial"
            )
        if cell.transport == "unicast":
            continue
        if multicast < payload:
            what = f"{participant} sent {payload} bytes of samples, only {multicast} as multicast"
            return Reason("not-on-wire", what)
        out = outputs.pod_bytes(participant, "tx_bytes")
        if out is not None and cell.subscribers > 1 and cell.publishers == 1 and not cell.graph:
            limit = (payload + multicast) * MULTICAST_COPIES + MULTICAST_SLACK_BYTES
            if out - multicast > limit:
                return Reason(
                    "not-on-wire", f"{participant} sent {out} bytes for {payload} bytes of multicast samples"
                )
    return None


def _not_as_requested(outputs: TrialOutputs) -> Reason | None:
    """Check that scheduler, locked memory and DSCP were in effect in every participant."""
    cell = outputs.trial.cell
    # The supervisor reads threads and memory at the end of the measured interval, which begins with the first sample.
    unread = {it.name for it, summary in outputs.summaries_of(SUBSCRIBER).items() if summary["received"] == 0}
    for name, seen in execution(outputs).items():
        threads = list(seen.get("threads") or {})
        if cell.realtime_priority and name not in unread and threads != [f"fifo {cell.realtime_priority}"]:
            return Reason("not-real-time", f"the threads of {name} ran as {', '.join(threads) or 'unknown'}")
        if cell.lock_memory and name not in unread and not seen.get("locked_bytes"):
            return Reason("not-locked", f"{name} locked {seen.get('locked_bytes') or 0} bytes of memory")
        if cell.dscp and seen["dscp"] != [cell.dscp]:
            return Reason("not-marked", f"the sockets of {name} have the DSCP {seen['dscp']}")
    return None


def execution(outputs: TrialOutputs) -> dict[str, dict[str, Any]]:
    """Return by participant what the supervisor read from the kernel, and the DSCP of the participant's sockets."""
    result = {}
    for participant, summary in outputs.summaries.items():
        seen = outputs.meters_of(participant).get("execution") or {}
        transport = (summary["transport"] if summary else None) or {}
        result[participant.name] = {**seen, "dscp": transport.get("dscp")}
    return result


def _not_captured(outputs: TrialOutputs) -> Reason | None:
    """Check that a packet capture holds samples, and that all became as many IP fragments."""
    counts = outputs.measurement.ip_fragments
    if not counts:
        return Reason("no-fragments", "the capture holds no whole sample")
    return (
        Reason("fragments", f"samples became {counts} IP fragments in one trial") if len(counts) > 1 else None
    )


def profile_of(outputs: TrialOutputs) -> Profile | Reason:
    """Return the profile of an attempt, or why it has none that shows anything."""
    try:
        profile = profiles.read(outputs.folder)
    except FileNotFoundError:
        # What prevented the profile is among the warnings of the testbed.
        return Reason("no-profile", "none was written; see the warnings")
    except (OSError, reading.UnreadableError) as error:
        return Reason("no-profile", reading.one_line(str(error), 300))
    if profile.samples >= profiles.MIN_SAMPLES:
        return profile
    return Reason(
        "no-profile", f"{profile.samples} samples, fewer than {profiles.MIN_SAMPLES}; measure longer"
    )
