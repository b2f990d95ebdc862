"""The dashboard: plain HTML, CSS and ES modules, as they lie in `static/`, on the parts of `rsm_spark.web`."""

from collections.abc import Mapping
from pathlib import Path

from rsm_spark.web.files import StaticFile, web_files

__all__ = ["static_files"]


def static_files() -> Mapping[str, StaticFile]:
    """Return its files by the path under which they are asked for."""
    return web_files(Path(__file__).parent / "static")
