"""Pages of a machine over HTTP: what runs, for how long, and how often it was started again."""

from __future__ import annotations

from ledger.audit_lines import Refusals
from ledger.http.metrics import MetricsPage
from ledger.http.routes import ProbePage, ProbeRoute, json_page, probe_routes, text_page
from rsm_spark.node.core.supervision import ChildPhase
from rsm_spark.node.node import NodeRunner


class NodePages:
    """Pages of one machine.

    Args:
        name: Of the machine.
        node: What is shown.
        refusals: Counts of the HTTP port.

    """

    def __init__(self, name: str, node: NodeRunner, refusals: Refusals) -> None:
        self._name = name
        self._node = node
        self._refusals = refusals

    def routes(self) -> dict[str, ProbeRoute]:
        """Return what is answered where."""
        return probe_routes(
            health=lambda: text_page("ok"), readiness=self._readiness, metrics=self.metrics, status=self._status
        )

    def _readiness(self) -> ProbePage:
        children = self._node.supervision.children.values()
        if waited := [f"{child.name} {child.phase}" for child in children if child.phase is not ChildPhase.READY]:
            return text_page(f"not ready: {', '.join(waited)}", 503)
        return text_page("ready")

    def _status(self) -> ProbePage:
        ending = self._node.supervision.is_ending
        return json_page({"name": self._name, "ending": ending, "processes": self._node.status()})

    def metrics(self) -> ProbePage:
        """Return what this process counts, for Prometheus."""
        page = MetricsPage()
        for child in self._node.supervision.children.values():
            is_ready = child.phase is ChildPhase.READY
            page.gauge("rsm_node_process_ready", "1 = the process runs and serves.", is_ready, process=child.name)
        for child in self._node.supervision.children.values():
            text = "Times that a process was started again."
            page.counter("rsm_node_restarts_total", text, child.restarts, process=child.name)
        for child in self._node.supervision.children.values():
            text = "Times that a process ended by itself, by the exit code that says over what."
            labels = {"process": child.name, "kind": self._node.kind_of(child.name)}
            for code, count in child.faults.items():  # Also those of 0: the first one is an increase too.
                page.counter("rsm_node_faults_total", text, count, **labels, code=str(code))
        page.refusals(self._refusals, "http")
        page.process()
        return page.page()
