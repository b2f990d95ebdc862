"""Callers over HTTP: the principal of a token or of a client's certificate, and how often it may ask.

The file says who they are: see `ledger.rights.entries`. It is read again when it has changed. One that cannot be read
any more changes nothing and is complained of: a slip of the pen must not lock everybody out, nor let anybody in.

Rates are a tenant's: all its tokens and certificates of the same rate empty one bucket, so that many of them send no
more than one. Who belongs to no tenant has a bucket of its own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from weakref import WeakValueDictionary

from ledger.http.rates import TokenBucket
from ledger.rights.file import PrincipalsFile, bearer_token
from ledger.rights.principal import ANYBODY, Principal, Role

_KEPT_MAX = 10_000
"""Callers whose buckets are kept; those of signed tokens come and go."""


class Caller:
    """Caller of the HTTP API.

    Args:
        principal: Who it is.
        bucket: Of its requests, shared by its tenant; None = no limit.
        tasks: Of the tasks that it submits; the same.
        bytes: Of the bodies of its requests; the same.

    Attributes:
        role: Of the principal.
        tenant: Whose things alone it sees; "" = all.
        name: For logs.
        running: Its requests that are not answered yet.

    """

    __slots__ = ("bucket", "bytes", "name", "principal", "role", "running", "tasks", "tenant")

    def __init__(
        self,
        principal: Principal,
        bucket: TokenBucket | None = None,
        tasks: TokenBucket | None = None,
        bytes: TokenBucket | None = None,  # noqa: A002 - what it counts
    ) -> None:
        self.principal = principal
        self.role = principal.role
        self.tenant = principal.tenant
        self.name = principal.name
        self.bucket = bucket
        self.tasks = tasks
        self.bytes = bytes
        self.running = 0


ADMINISTRATOR = Caller(ANYBODY)
"""Caller where there are no tokens: on loopback only."""
NOBODY = Caller(Principal(name="nobody", role=Role.AUDITOR, tenant="-"))
"""Caller that has shown no known token."""


class Tokens:
    """The callers of a file.

    Args:
        path: Of the file.
        rate_per_s: Of principals that say nothing else.
        rate_burst: The same.
        rate_tasks_per_s: The same of tasks submitted.
        rate_bytes_per_s: The same of bytes of bodies.
        now_s: Monotonic time.
        is_strict: See `PrincipalsFile`.

    Raises:
        UsageError: It cannot be used.

    """

    def __init__(
        self,
        path: str,
        *,
        rate_per_s: float,
        rate_burst: int,
        rate_tasks_per_s: float = 0.0,
        rate_bytes_per_s: float = 0.0,
        now_s: float,
        is_strict: bool = False,
    ) -> None:
        self._file = PrincipalsFile(path, now_s=now_s, is_strict=is_strict)
        self._rate_per_s = rate_per_s
        self._rate_burst = rate_burst
        self._rate_tasks_per_s = rate_tasks_per_s
        self._rate_bytes_per_s = rate_bytes_per_s
        # Who stays as it was keeps its bucket when the file is read again; the one that asked last is at the end.
        self._callers: OrderedDict[tuple[Principal, bytes], Caller] = OrderedDict()
        # By tenant, what is counted, rate and burst; kept by the callers.
        self._shared: WeakValueDictionary[tuple[str, str, float, int], TokenBucket] = WeakValueDictionary()

    @property
    def failure(self) -> str:
        """Reason why the file as it is now is not used; "" = it is used."""
        return self._file.failure

    def caller(self, authorization: bytes, *, now_s: float, wall_s: float) -> Caller | None:
        """Return whose token a request carries; None = nobody's.

        Args:
            authorization: Header: "Bearer " and the token.
            now_s: Monotonic time.
            wall_s: Wall clock, for tokens that expire.

        """
        self._file.look(now_s)
        token = bearer_token(authorization)
        principal = self._file.of_token(token, wall_s)
        if principal is None:
            return None
        # Tokens whose entries have no name are each somebody of its own.
        return self._caller(principal, b"" if principal.name else hashlib.sha256(token).digest(), now_s)

    def caller_of_certificate(self, names: Sequence[str], *, now_s: float, wall_s: float) -> Caller | None:
        """Return whose certificate has these names; None = nobody's."""
        self._file.look(now_s)
        principal = self._file.of_certificate(names, wall_s)
        return None if principal is None else self._caller(principal, b"", now_s)

    def _caller(self, principal: Principal, own: bytes, now_s: float) -> Caller:
        key = principal, own
        found = self._callers.get(key)
        if found is None:
            found = self._callers[key] = Caller(principal, *self._buckets(principal, now_s))
            if len(self._callers) > _KEPT_MAX:
                self._callers.popitem(last=False)
        else:
            self._callers.move_to_end(key)
        return found

    def _buckets(self, principal: Principal, now_s: float) -> list[TokenBucket | None]:
        """Return those of requests, tasks and bytes; of the latter two each holds what comes in two seconds."""
        rate = self._rate_per_s if principal.rate_per_s is None else principal.rate_per_s
        burst = principal.rate_burst
        if burst is None:
            burst = self._rate_burst if principal.rate_per_s is None else int(2 * rate)
        tasks, size = principal.rate_tasks_per_s, principal.rate_bytes_per_s
        tasks = self._rate_tasks_per_s if tasks is None else tasks
        size = self._rate_bytes_per_s if size is None else size
        wanted = (("requests", rate, burst), ("tasks", tasks, int(2 * tasks)), ("bytes", size, int(2 * size)))
        return [self._bucket(principal.tenant, what, each, max(1, most), now_s) for what, each, most in wanted]

    def _bucket(self, tenant: str, what: str, rate: float, burst: int, now_s: float) -> TokenBucket | None:
        if not rate:
            return None
        bucket = self._shared.get((tenant, what, rate, burst)) if tenant else None
        if bucket is None:
            bucket = TokenBucket(rate, burst, now_s)
            if tenant:
                self._shared[tenant, what, rate, burst] = bucket
        return bucket
