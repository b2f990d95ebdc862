"""Counts the flights per tail number straight from the CSV, with the standard library alone.

Run as a program of its own (``python -I plain_count.py CSV_ZIP [LIMIT]``): it imports nothing of this project, so that
its answer owes nothing to the code that it checks. Prints one JSON object, tail number to [where, flights, cancelled,
delay minutes, {airline: [flights, cancelled, delay minutes]}].
"""

from __future__ import annotations

import collections
import csv
import io
import json
import sys
import zipfile


def main(arguments: list[str]) -> None:
    with zipfile.ZipFile(arguments[0]) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("flights.csv").decode())))
    for number, row in enumerate(rows):
        row["number"] = f"{number:09}"
        row["due"] = f"{int(row['sched_dep_time']):04}"
    rows.sort(key=lambda row: row["time_hour"] + row["due"] + row["number"])
    if len(arguments) > 1:
        rows = rows[: int(arguments[1])]
    flights: collections.Counter[str] = collections.Counter()
    cancelled: collections.Counter[str] = collections.Counter()
    delay: collections.Counter[str] = collections.Counter()
    where: dict[str, str] = {}
    airlines: collections.defaultdict[str, dict[str, list[int]]] = collections.defaultdict(dict)
    for row in rows:
        tail = row["tailnum"]
        if tail in {"", "NA"}:
            tail = "unknown"
        flights[tail] += 1
        of_airline = airlines[tail].setdefault(row["carrier"], [0, 0, 0])
        of_airline[0] += 1
        if row["dep_time"] in {"", "NA"}:
            cancelled[tail] += 1
            of_airline[1] += 1
            continue
        where[tail] = row["dest"]
        if row["dep_delay"] not in {"", "NA"} and float(row["dep_delay"]) > 0:
            delay[tail] += int(float(row["dep_delay"]))
            of_airline[2] += int(float(row["dep_delay"]))
    answer = {
        tail: [where.get(tail, ""), flights[tail], cancelled[tail], delay[tail], airlines[tail]]
        for tail in sorted(flights)
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
