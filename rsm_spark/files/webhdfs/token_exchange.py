"""The token endpoint of the door: Hadoop's client can show a bearer token only after it has asked for one here.

Its providers of access tokens (`dfs.webhdfs.oauth2.*`) know OAuth2's grants alone. So a client's own token is taken as
its secret, or as its refresh token, and the same is given back. Nothing is made or kept.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

import msgspec

from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply
from rsm_spark.files.webhdfs.call import WebHdfsCall

TOKEN_PATH = "/webhdfs/oauth2/token"  # noqa: S105 - where one is asked for
_EXPIRES_S = 3_600
_FORM_BYTES_MAX = 16 * 1024
_FIELDS_MAX = 20
_SECRETS: Final = {"client_credentials": "client_secret", "refresh_token": "refresh_token"}
"""By grant, the field in which the token is."""


async def exchange(call: WebHdfsCall) -> HttpReply:
    """Answer a request for an access token.

    Raises:
        HttpProblem: 400: it is none, or there are no tokens here. 401: the token is nobody's, or another's. 405.

    """
    if call.scope["method"] != "POST":
        raise HttpProblem(405, "method-not-allowed", "a token is asked for by POST")
    form = _fields(await call.short_body(_FORM_BYTES_MAX))
    grant = form.get("grant_type", "")
    if grant not in _SECRETS:
        raise HttpProblem(400, "invalid", f"grant_type is one of {', '.join(_SECRETS)}")
    if call.state.tokens is None:
        raise HttpProblem(400, "invalid", "nobody needs a token here: leave dfs.webhdfs.oauth2.enabled out")
    secret = form.get(_SECRETS[grant], "")
    if not secret.isascii() or not secret.isprintable():
        raise HttpProblem(401, "bad-token", "this token is not known here, or has expired")
    call.caller = call.state.caller({b"authorization": f"Bearer {secret}".encode()}, call.scope, call.state.clock_s())
    call.state.admit(call.caller)
    name = form.get("client_id", "")
    if name and call.caller.name and name != call.caller.name:
        raise HttpProblem(401, "bad-token", "client_id is not the name of the principal whose token this is")
    answer = {"access_token": secret, "token_type": "bearer", "expires_in": _EXPIRES_S}
    return HttpReply(200, msgspec.json.encode(answer))


def _fields(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode("ascii"), errors="strict", max_num_fields=_FIELDS_MAX))
    except ValueError:
        raise HttpProblem(400, "invalid", "this is no form: application/x-www-form-urlencoded") from None
