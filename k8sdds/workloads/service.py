"""The service workload: connections to the address of a Service, which rules on the client's node translate."""

from __future__ import annotations

from k8sdds.model.options import ServiceOptions
from k8sdds.model.reason import Reason
from k8sdds.model.services import HEADLESS, ServiceSet
from k8sdds.model.trial import PUBLISHER, Cell
from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.transactions import TcpCrr

UNOBSERVED = "translation not observed"
"""Begins the warning on trials whose client may have reached the server in another way than by the Service."""


class Service(TcpCrr):
    """Connections to a Service, with one request and one response of `payload_bytes` each."""

    name = "service"
    columns = (*TcpCrr.columns, "service_connections", "service_tracked")

    def services(self, cell: Cell) -> ServiceSet:
        options = ServiceOptions(**cell.test_options)
        return ServiceSet(options.services, options.via, options.proxy)

    def unsupported(self, cell: Cell) -> str | None:
        if not cell.crosses_links:
            return "a service test needs client and server on two nodes: leave out placement"
        return super().unsupported(cell)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        super().measure(record, outputs)
        record.service_connections = outputs.measurement.service_connections
        record.service_tracked = outputs.measurement.service_tracked

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        seen, cell = outputs.measurement, outputs.trial.cell
        wanted = self.services(cell)
        if wanted.proxy and seen.service_unobserved and seen.proxy_mode is None:
            why = f"kube-proxy in {wanted.proxy} mode was not observed: {seen.service_unobserved}"
            return Reason("not-translated", why)
        if not seen.service_unobserved:
            translated = seen.service_connections
            if wanted.via == HEADLESS:
                if translated != 0:
                    return Reason(
                        "translated", f"rules translated {translated} connections to the pod's own address"
                    )
            elif not (translated is None and seen.service_tracked):
                opened = sum(
                    (client["delivered_bytes"] + client["warmup_delivered_bytes"]) // cell.payload_bytes
                    for client in outputs.summaries_of(PUBLISHER).values()
                )
                if translated is None or translated < opened:
                    return Reason(
                        "not-translated",
                        f"the rule of the Service translated {translated} of {opened} connections",
                    )
        return super().invalid(outputs)

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        reason = outputs.measurement.service_unobserved
        return [*super().warnings(outputs), *([f"{UNOBSERVED}: {reason}"] if reason else [])]
