"""Options that the commands of tasks and tenants share: the broker's address and the caller."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from broker.client.blocking import BrokerClient
from broker.client.client import TIMEOUT_S
from ledger.cluster_options import ClusterOptions
from ledger.errors import UsageError
from ledger.options import Option
from ledger.tls import TlsSettings


class BrokerOptions(ClusterOptions, frozen=True, kw_only=True):
    """Options of a command for a broker."""

    urls: Annotated[
        list[str] | None,
        Option(
            "A broker, any of them; may be repeated.",
            name="url",
            variables=("RSM_BROKER_URL",),
            shown="found through ZooKeeper",
        ),
    ] = None
    token_file: Annotated[
        Path | None, Option("File with the token; or RSM_BROKER_TOKEN.", variables=("RSM_BROKER_TOKEN_FILE",))
    ] = None
    tls_ca: Annotated[Path | None, Option("Authorities trusted for https, PEM.", variables=("RSM_BROKER_TLS_CA",))] = (
        None
    )
    timeout_s: Annotated[float, Option("Seconds to wait for a broker that answers.", name="timeout", ge=0.01)] = (
        TIMEOUT_S
    )

    def connect(self, tenant: str = "") -> BrokerClient:
        """Return a client.

        Raises:
            UsageError: The token or the certificates cannot be read, or a URL is none.

        """
        return BrokerClient.connect(
            self.urls or (),
            metadata_uri=self.metadata_uri,
            token="" if self.token_file is not None else os.environ.get("RSM_BROKER_TOKEN", "").strip(),
            token_file=self.token_file,
            tenant=tenant,
            timeout_s=self.timeout_s,
            tls=None if self.tls_ca is None else TlsSettings(ca=str(self.tls_ca)),
        )


class TenantOptions(BrokerOptions, frozen=True, kw_only=True):
    """Options of a command for tasks of a tenant."""

    tenant: Annotated[str, Option("Whose tasks; a tenant's token says so by itself.", variables=("RSM_TENANT",))] = ""

    def connect(self, tenant: str = "") -> BrokerClient:
        """Return a client for the tasks of this tenant."""
        return super().connect(tenant or self.tenant)


def to_json(value: Any) -> Any:
    """Return a struct as what JSON shows: without fields that are not there (None)."""
    shown = msgspec.to_builtins(value)
    if isinstance(shown, dict):
        return {name: item for name, item in shown.items() if item is not None}
    return shown


def amounts(pairs: Iterable[str], what: str) -> dict[str, int]:
    """Read "name=amount" arguments.

    Raises:
        UsageError: One is none.

    """
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, amount = pair.partition("=")
        if not name or not amount.isdecimal():
            raise UsageError(f"{what} {pair!r}: expected name=amount, such as gpu=1")
        found[name] = int(amount)
    return found
