"""History of any machine by SQL, and what a task broker did, kept for good."""

from __future__ import annotations

from connectors.history.views import history_views

__all__ = ["history_views"]
