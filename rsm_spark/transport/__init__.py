"""gRPC between the store's clients and a replica; the only place of this package that imports grpc."""

from __future__ import annotations

import os

# gRPC's C core writes lines of its own to standard error, beside the errors that we raise: only for who asks for them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
