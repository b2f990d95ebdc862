"""Functions of the code pool that tests deploy: each is given a session."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.connect.session import SparkSession

SHIFT = 7


def total(context: Any, payload: bytes, *, spark: Any) -> str:
    row = spark.range(int(payload)).selectExpr("sum(id) AS total").first()
    return f"{row['total']} {os.environ['RSM_SPARK_CONNECT']}"


def looks(context: Any, payload: bytes, *, spark: Any) -> str:
    """Look for a view that another run has made, and for a file that is not for code."""
    seen = []
    if spark.catalog.tableExists("mine"):
        seen.append("view")
    spark.range(1).createOrReplaceTempView("mine")
    try:
        Path(payload.decode()).read_text()
        seen.append("file")
    except OSError:
        pass
    return ",".join(seen)


def ships(context: Any, payload: bytes, *, spark: Any) -> str:
    """Have an executor import this module."""
    spark.addArtifacts(__file__, pyfile=True)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        import spark_functions  # type: ignore[import-not-found]  # noqa: PLC0415

        for batch in batches:
            yield batch.assign(id=batch["id"] + spark_functions.SHIFT)

    return str(spark.range(1).mapInPandas(call, "id long").first()["id"])


def fails(context: Any, payload: bytes, *, spark: Any) -> None:
    spark.sql("SELECT nothing FROM nowhere").collect()


def works_for_ever(context: Any, payload: bytes, *, spark: Any) -> None:
    _tick_for_ever(spark, payload.decode())


def dies_while_another_session_works(context: Any, payload: bytes, *, spark: Any) -> None:
    place = payload.decode()
    # Under a name that is no run's.
    other = SparkSession.builder.remote(f"sc://{os.environ['RSM_SPARK_CONNECT']}/;user_id=somebody").create()
    threading.Thread(target=_tick_for_ever, args=(other, place), daemon=True).start()
    # The file is not for this process to see: only executors write there.
    while not spark.range(1).mapInPandas(_seen(place), "seen boolean").first()["seen"]:
        time.sleep(0.1)
    os._exit(3)


def _tick_for_ever(spark: Any, place: str) -> None:
    """Have an executor write to a file, over and over."""

    def tick(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            while True:
                with open(place, "a") as file:  # noqa: PTH123 - pickled by value
                    file.write(".")
                time.sleep(0.05)
            yield batch

    spark.range(1).mapInPandas(tick, "id long").collect()


def _seen(place: str) -> Any:
    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.assign(seen=os.path.exists(place))[["seen"]]  # noqa: PTH110

    return look
