"""Memory that is free in this process and counts as its own: given back after each conversion."""

from __future__ import annotations

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Give what is free back to the kernel; does nothing where the C library is not glibc. Takes milliseconds."""
    if _trim is not None:
        _trim(0)
