"""`python -m rsm_spark` is `rsm`."""

from __future__ import annotations

from rsm_spark.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
