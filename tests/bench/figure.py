"""One measured figure as a JSON line."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence

ROUND_COUNT = 3


def print_figure(name: str, values: Sequence[float], unit: str, peer_values: Sequence[float] = ()) -> None:
    """Print `{"bench", "value": median, "unit", "range", "peer", "ratio"}`; without a peer the last two are null."""
    median = statistics.median(values)
    peer = statistics.median(peer_values) if peer_values else None
    line = {
        "bench": name,
        "value": _rounded(median),
        "unit": unit,
        "range": [_rounded(min(values)), _rounded(max(values))],
        "peer": None if peer is None else _rounded(peer),
        "ratio": None if peer is None else round(median / peer, 2),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def print_figure_beside(name: str, values: Sequence[float], unit: str, peers: Mapping[str, Sequence[float]]) -> None:
    """Print `{"bench", "value": median, "unit", "range", "peers", "ratios"}`; one without values is null in both."""
    median = statistics.median(values)
    found = {peer: statistics.median(measured) if measured else None for peer, measured in peers.items()}
    line = {
        "bench": name,
        "value": _rounded(median),
        "unit": unit,
        "range": [_rounded(min(values)), _rounded(max(values))],
        "peers": {peer: None if one is None else _rounded(one) for peer, one in found.items()},
        "ratios": {peer: round(median / one, 2) if one else None for peer, one in found.items()},
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Tell on standard error what is being measured."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share (0..1) of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _rounded(value: float) -> float:
    return round(value, 3 if abs(value) < 100 else 0)
