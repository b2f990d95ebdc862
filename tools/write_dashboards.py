"""Writes the dashboards of Grafana from the panels below: rsm_spark/monitoring/grafana/*.json.

.venv/bin/python tools/write_dashboards.py           # as `make dashboards` does
.venv/bin/python tools/write_dashboards.py --check   # writes nothing; exit code 1 if one is not current
"""

# ruff: noqa: INP001, T201 - a script; a panel is a line

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).resolve().parents[1] / "rsm_spark" / "monitoring" / "grafana"
_ACROSS, _HEIGHT, _WIDTH = 3, 8, 8
_LOG = 'log=~"$log"'


class Panel(NamedTuple):
    """A panel: its title, the unit of Grafana, and (expression, legend) of each line."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


def _rate(counter: str) -> str:
    return f"rate({counter}[$__rate_interval])"


def _p99(histogram: str, by: str) -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({histogram}_bucket[$__rate_interval])))"


# fmt: off
_CLUSTER = (
    Panel("Processes that answer", "short", (('sum by (job) (up{job=~"rsm-.+"})', "{{job}}"),)),
    Panel(
        "Bookies: 1 takes adds, 0 read-only, -1 not registered", "short", (("bookie_SERVER_STATUS", "{{instance}}"),)
    ),
    Panel(
        "Ledgers that lack copies",
        "short",
        (("max(rsm_under_replicated_ledgers)", "lack copies"), ("max(rsm_lost_bookies)", "bookies lost")),
    ),
    Panel(
        "Adds",
        "ops",
        (("sum by (instance) (rate(bookkeeper_server_ADD_ENTRY_REQUEST_count[$__rate_interval]))", "{{instance}}"),),
    ),
    Panel("Reads of one entry", "ops", ((_rate("bookkeeper_server_READ_ENTRY_REQUEST_count"), "{{instance}}"),)),
    Panel("Bytes of entries written", "Bps", ((_rate("bookie_journal_JOURNAL_WRITE_BYTES"), "{{instance}}"),)),
    Panel("Sync of the journal, p99", "s", ((_p99("rsm_bookie_journal_sync_seconds", "instance"), "{{instance}}"),)),
    Panel(
        "Free room",
        "bytes",
        (
            ("rsm_bookie_disk_free_bytes", "{{instance}} {{kind}}"),
            ("rsm_data_disk_free_bytes", "{{instance}} {{folder}}"),
        ),
    ),
    Panel(
        "Segments: bytes, and those still needed",
        "bytes",
        (("bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES", "{{instance}}"), ("rsm_bookie_live_bytes", "{{instance}} needed")),
    ),
    Panel(
        "Entries copied by auto-recovery",
        "ops",
        ((_rate("replication_replication_worker_NUM_ENTRIES_WRITTEN"), "{{instance}}"),),
    ),
    Panel("Sessions with ZooKeeper", "short", (("rsm_metadata_session", "{{job}} {{instance}}"),)),
    Panel("Processes started again", "short", (("increase(rsm_node_restarts_total[1h])", "{{instance}} {{process}}"),)),
    Panel("CPU", "percentunit", ((_rate("process_cpu_seconds_total"), "{{job}} {{instance}}"),)),
    Panel("Memory", "bytes", (("process_resident_memory_bytes", "{{job}} {{instance}}"),)),
    Panel(
        "Clock beside Prometheus'",
        "s",
        (("rsm_clock_timestamp_seconds - timestamp(rsm_clock_timestamp_seconds)", "{{instance}}"),),
    ),
    Panel("Refused connections and requests", "ops", ((_rate("rsm_refusals_total"), "{{instance}} {{reason}}"),)),
    Panel(
        "Certificates: time left", "s", (("rsm_certificate_end_timestamp_seconds - time()", "{{instance}} {{file}}"),)
    ),
)
_LOGS = (
    Panel("Leaders", "short", ((f'sum by (log) (rsm_role{{role="leader",{_LOG}}})', "{{log}}"),)),
    Panel("Records", "ops", ((f"max by (log) (rate(rsm_records_total{{{_LOG}}}[$__rate_interval]))", "{{log}}"),)),
    Panel("Bytes", "Bps", ((f"max by (log) (rate(rsm_entry_bytes_total{{{_LOG}}}[$__rate_interval]))", "{{log}}"),)),
    Panel("Revision", "short", ((f"rsm_revision{{{_LOG}}}", "{{log}} {{instance}}"),)),
    Panel("How old the state is", "s", ((f"rsm_lag_seconds{{{_LOG}}}", "{{log}} {{instance}}"),)),
    Panel("Epoch: grows with each leader", "short", ((f"max by (log) (rsm_leader_epoch{{{_LOG}}})", "{{log}}"),)),
    Panel(
        "Linearizable reads",
        "ops",
        ((f"sum by (log, by) (rate(rsm_reads_total{{{_LOG}}}[$__rate_interval]))", "{{log}} {{by}}"),),
    ),
    Panel(
        "Entries of followers, by where from",
        "ops",
        ((f"sum by (log, by) (rate(rsm_followed_entries_total{{{_LOG}}}[$__rate_interval]))", "{{log}} {{by}}"),),
    ),
    Panel(
        "Records an entry, mean",
        "short",
        (
            (
                (
                    f"sum by (log) (rate(rsm_batch_records_sum{{{_LOG}}}[$__rate_interval])) / "
                    f"sum by (log) (rate(rsm_batch_records_count{{{_LOG}}}[$__rate_interval]))"
                ),
                "{{log}}",
            ),
        ),
    ),
    Panel("Requests that wait", "short", ((f"rsm_queued_requests{{{_LOG}}}", "{{log}} {{instance}}"),)),
    Panel(
        "Rows and sessions",
        "short",
        (
            (f"max by (log) (rsm_rows{{{_LOG}}})", "{{log}} rows"),
            (f"max by (log) (rsm_sessions{{{_LOG}}})", "{{log}} sessions"),
        ),
    ),
    Panel("Memory of its limit", "percentunit", (("rsm_memory_used_bytes / rsm_memory_limit_bytes", "{{instance}}"),)),
    Panel("Age of snapshots", "s", ((f"rsm_snapshot_age_seconds{{{_LOG}}}", "{{log}} {{instance}}"),)),
    Panel(
        "Verified up to", "short", ((f"max by (log, place) (rsm_verified_revision{{{_LOG}}})", "{{log}} {{place}}"),)
    ),
    Panel(
        "Trimming: ledgers that may go, consumers overrun",
        "short",
        (
            (f"max by (log) (rsm_trimmable_ledgers{{{_LOG}}})", "{{log}} may go"),
            (f"sum by (log) (rsm_lapsed_consumers_total{{{_LOG}}})", "{{log}} overrun"),
        ),
    ),
    Panel(
        "Alarms",
        "short",
        ((f"rsm_alarms{{{_LOG}}}", "{{log}} {{instance}}"), (f"rsm_failed{{{_LOG}}}", "{{log}} {{instance}} stopped")),
    ),
    Panel(
        "Gateways: records, requests",
        "ops",
        (
            ("rate(rsm_gateway_records_total[$__rate_interval])", "{{instance}}"),
            (
                "sum by (instance, status) (rate(rsm_gateway_requests_total[$__rate_interval]))",
                "{{instance}} {{status}}",
            ),
        ),
    ),
)
_BROKER = (
    Panel("Tasks by status", "short", ((f"max by (log, status) (rsm_broker_tasks{{{_LOG}}})", "{{log}} {{status}}"),)),
    Panel(
        "Waiting tasks that nobody serves",
        "short",
        ((f"max by (log) (rsm_broker_unserved_tasks{{{_LOG}}})", "{{log}}"),),
    ),
    Panel(
        "Age of the oldest waiting task",
        "s",
        ((f"max by (log) (rsm_broker_oldest_waiting_seconds{{{_LOG}}})", "{{log}}"),),
    ),
    Panel(
        "Dispatched",
        "ops",
        ((f"sum by (log) (rate(rsm_broker_dispatched_total{{{_LOG}}}[$__rate_interval]))", "{{log}}"),),
    ),
    Panel(
        "Workers by status", "short", ((f"max by (log, status) (rsm_broker_workers{{{_LOG}}})", "{{log}} {{status}}"),)
    ),
    Panel(
        "Threads of workers, tenants with tasks",
        "short",
        (
            (f"max by (log) (rsm_broker_threads{{{_LOG}}})", "{{log}} threads"),
            (f"max by (log) (rsm_broker_tenants{{{_LOG}}})", "{{log}} tenants"),
        ),
    ),
    Panel(
        "HTTP requests by status",
        "reqps",
        (("sum by (status) (rate(broker_http_requests_total[$__rate_interval]))", "{{status}}"),),
    ),
    Panel(
        "HTTP, mean time of a request",
        "s",
        (
            (
                (
                    "sum by (route) (rate(broker_http_seconds_total[$__rate_interval])) / "
                    "sum by (route) (rate(broker_http_requests_total[$__rate_interval]))"
                ),
                "{{route}}",
            ),
        ),
    ),
    Panel("HTTP connections", "short", (("broker_http_connections", "{{instance}}"),)),
    Panel("Workers: tasks that run, by type", "short", (("sum by (type) (rsm_worker_running_tasks)", "{{type}}"),)),
    Panel(
        "Workers: tasks that ended",
        "ops",
        (("sum by (type, status) (rate(rsm_worker_ended_tasks_total[$__rate_interval]))", "{{type}} {{status}}"),),
    ),
    Panel("Workers: connected", "short", (("rsm_worker_connected", "{{instance}}"),)),
)
_SPARK = (
    Panel("Queries that run", "short", (("rsm_stream_active", "{{query}}"),)),
    Panel("Rows read", "ops", ((_rate("rsm_stream_rows_total"), "{{query}} {{source}}"),)),
    Panel("Behind: records", "short", (("rsm_stream_behind_records", "{{query}} {{source}}"),)),
    Panel("Behind: time", "s", (("rsm_stream_behind_seconds", "{{query}} {{source}}"),)),
    Panel("Behind: bytes", "bytes", (("rsm_stream_behind_bytes", "{{query}} {{source}}"),)),
    Panel("Time of a micro-batch, p99", "s", ((_p99("rsm_stream_batch_seconds", "query"), "{{query}}"),)),
    Panel("Micro-batches", "ops", ((_rate("rsm_stream_batches_total"), "{{query}}"),)),
    Panel("Failures", "short", (("increase(rsm_stream_failures_total[1h])", "{{query}}"),)),
    Panel("Records that were gone", "short", (("rsm_stream_lost_records", "{{query}} {{source}}"),)),
    Panel("Time since a query told anything", "s", (("time() - rsm_stream_progress_timestamp_seconds", "{{query}}"),)),
)
# fmt: on
_BOARDS = {"cluster": _CLUSTER, "log": _LOGS, "broker": _BROKER, "spark": _SPARK}


def _variables(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
    if name in ("log", "broker"):
        metric = "rsm_revision" if name == "log" else "rsm_broker_threads"
        found.append(
            {
                "name": "log",
                "type": "query",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": f"label_values({metric}, log)",
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
                "refresh": 2,
            }
        )
    return found


def dashboard(name: str, panels: Sequence[Panel]) -> str:
    """Return the JSON of a dashboard."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    shown = [
        {
            "id": place + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": source,
            "gridPos": {"x": _WIDTH * (place % _ACROSS), "y": _HEIGHT * (place // _ACROSS), "w": _WIDTH, "h": _HEIGHT},
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + number), "datasource": source, "expr": expression, "legendFormat": legend}
                for number, (expression, legend) in enumerate(panel.lines)
            ],
        }
        for place, panel in enumerate(panels)
    ]
    board = {
        "uid": f"rsm-{name}",
        "title": f"rsm-spark: {name}",
        "tags": ["rsm-spark"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(name)},
        "panels": shown,
    }
    return json.dumps(board, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the files, or compare them; return the exit code."""
    files = {_FOLDER / f"{name}.json": dashboard(name, panels) for name, panels in _BOARDS.items()}
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        print("".join(f"{path.name} is not current: run `make dashboards`\n" for path in stale), end="")
        return int(bool(stale))
    for path in stale:
        path.write_text(files[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
