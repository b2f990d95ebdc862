"""Pages of metrics as OTLP's protobuf messages: the same names, labels as attributes. It needs the extra `otel`.

What `/metrics` says is Prometheus' text format, whichever part of a process writes it; so that is what is read here.
Everything counts from the start of the process: sums and histograms are cumulative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

from ledger.telemetry.otlp import attributes_of
from ledger.telemetry.tracing import Value

_CUMULATIVE = metrics_pb2.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_SAMPLE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.ASCII)
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)",?', re.ASCII)
_ESCAPE: Final = re.compile(r'\\([\\"n])')
_UNIT: Final = re.compile(r"_(seconds|bytes)(?:_total)?$", re.ASCII)
_UNITS: Final = {"seconds": "s", "bytes": "By"}
_PARTS: Final = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


class TimedPage(NamedTuple):
    """Page of `/metrics` at one moment.

    Attributes:
        text: Of it, in Prometheus' text format.
        time_ns: When.
        start_ns: Since when it counts.

    """

    text: str
    time_ns: int
    start_ns: int


class _Sample(NamedTuple):
    part: str
    labels: dict[str, str]
    value: float


class _Family:
    """Metric with its samples: of one name, one kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.kind = ""
        self.samples: list[_Sample] = []


def encode_metrics(pages: Sequence[TimedPage], resource: Mapping[str, Value]) -> bytes:
    """Return the request that tells a collector of pages.

    Raises:
        ValueError: A line of a page is none.

    """
    scope = common_pb2.InstrumentationScope(name="rsm-spark")
    scopes = [metrics_pb2.ScopeMetrics(scope=scope, metrics=list(_metrics(page))) for page in pages]
    told = metrics_pb2.ResourceMetrics(
        resource=resource_pb2.Resource(attributes=attributes_of(resource)), scope_metrics=scopes
    )
    return metrics_service_pb2.ExportMetricsServiceRequest(resource_metrics=[told]).SerializeToString()


def rejected_pages(answer: bytes) -> int:
    """Return 1 where a collector did not take all that it was told, by its answer; it counts points, not pages."""
    try:
        found = metrics_service_pb2.ExportMetricsServiceResponse.FromString(answer)
    except DecodeError:
        return 0
    return int(found.partial_success.rejected_data_points > 0)


def _metrics(page: TimedPage) -> Iterator[metrics_pb2.Metric]:
    for family in _families(page.text):
        if not family.samples:
            continue
        told: dict[str, Any]
        match family.kind:
            case "counter":
                points = list(_numbers(family, page, page.start_ns))
                told = {
                    "sum": metrics_pb2.Sum(data_points=points, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
                }
            case "histogram":
                points_ = [_histogram(labels, parts, page) for labels, parts in _grouped(family.samples)]
                told = {"histogram": metrics_pb2.Histogram(data_points=points_, aggregation_temporality=_CUMULATIVE)}
            case "summary":
                told = {
                    "summary": metrics_pb2.Summary(
                        data_points=[_summary(labels, parts, page) for labels, parts in _grouped(family.samples)]
                    )
                }
            case _:
                told = {"gauge": metrics_pb2.Gauge(data_points=list(_numbers(family, page, 0)))}
        yield metrics_pb2.Metric(name=family.name, description=family.text, unit=_unit(family.name), **told)


def _families(text: str) -> Iterable[_Family]:
    families: dict[str, _Family] = {}
    for line in text.split("\n"):
        if not line.startswith("#"):
            if line:
                _take_in(families, line)
            continue
        _, word, name, rest = [*line.split(" ", 3), "", "", ""][:4]
        if word in {"HELP", "TYPE"}:
            family = families.setdefault(name, _Family(name))
            if word == "HELP":
                family.text = _plain(rest)
            else:
                family.kind = rest
    return families.values()


def _take_in(families: dict[str, _Family], line: str) -> None:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        raise ValueError(f"a page of metrics has a line that is none: {line[:200]!r}")
    name, labels, value = found.groups()
    family, part = families.get(name), ""
    if family is None:
        for end in ("_bucket", "_sum", "_count"):
            whole = families.get(name.removesuffix(end)) if name.endswith(end) else None
            if whole is not None and end in _PARTS.get(whole.kind, ()):
                family, part = whole, end
    if family is None:
        family = families[name] = _Family(name)
    told = {key: _plain(one) for key, one in _LABEL.findall(labels or "")}
    family.samples.append(_Sample(part, told, float(value)))


def _unit(name: str) -> str:
    """Return the unit that a name ends with, as OTLP has it; "" = none."""
    found = _UNIT.search(name)
    return _UNITS[found[1]] if found else ""


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text


def _numbers(family: _Family, page: TimedPage, start_ns: int) -> Iterator[metrics_pb2.NumberDataPoint]:
    for sample in family.samples:
        yield metrics_pb2.NumberDataPoint(
            attributes=attributes_of(sample.labels),
            start_time_unix_nano=start_ns,
            time_unix_nano=page.time_ns,
            as_double=sample.value,
        )


def _grouped(samples: Iterable[_Sample]) -> Iterable[tuple[dict[str, str], list[_Sample]]]:
    """Return the samples that make one point, with its labels."""
    points: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], list[_Sample]]] = {}
    for sample in samples:
        labels = {key: value for key, value in sample.labels.items() if key not in {"le", "quantile"}}
        points.setdefault(tuple(sorted(labels.items())), (labels, []))[1].append(sample)
    return points.values()


def _histogram(labels: Mapping[str, str], parts: Sequence[_Sample], page: TimedPage) -> metrics_pb2.HistogramDataPoint:
    buckets = sorted((float(one.labels["le"]), int(one.value)) for one in parts if one.part == "_bucket")
    counts = [count - below for (_, count), below in zip(buckets, [0, *(count for _, count in buckets)], strict=False)]
    return metrics_pb2.HistogramDataPoint(
        attributes=attributes_of(labels),
        start_time_unix_nano=page.start_ns,
        time_unix_nano=page.time_ns,
        count=_of(parts, "_count"),
        sum=sum(one.value for one in parts if one.part == "_sum"),
        explicit_bounds=[bound for bound, _ in buckets[:-1]],
        bucket_counts=counts,
    )


def _summary(labels: Mapping[str, str], parts: Sequence[_Sample], page: TimedPage) -> metrics_pb2.SummaryDataPoint:
    return metrics_pb2.SummaryDataPoint(
        attributes=attributes_of(labels),
        start_time_unix_nano=page.start_ns,
        time_unix_nano=page.time_ns,
        count=_of(parts, "_count"),
        sum=sum(one.value for one in parts if one.part == "_sum"),
        quantile_values=[
            metrics_pb2.SummaryDataPoint.ValueAtQuantile(quantile=float(one.labels["quantile"]), value=one.value)
            for one in parts
            if not one.part
        ],
    )


def _of(parts: Iterable[_Sample], part: str) -> int:
    return int(sum(one.value for one in parts if one.part == part))
