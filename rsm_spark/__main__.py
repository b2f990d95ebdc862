"""`python -m rsm_spark` is `rsm`."""

from __future__ import annotations

from rsm_spark.cli.main import main

if __name__ == "__main__":
    main()
