"""SQLAlchemy's test suite of dialects; becomes `test_suite.py`."""

from sqlalchemy.testing.suite import *  # noqa: F403
