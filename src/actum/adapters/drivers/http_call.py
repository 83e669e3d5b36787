"""Makes one HTTP call inside a sandbox. This file is the program; its request comes on stdin.

Run by a bare `python3 -I`, so it imports only the standard library. The request is JSON (see
`adapters/api.py`), the answer is one JSON document on stdout. The sandbox decides what it may
reach; its own check of redirects keeps credentials from other hosts and reports early what would
be refused anyway. Certificates are always verified.

Exit codes: 0 a status of 2xx; 1 any other status; 2 the server was not reached or disconnected;
3 an unusable answer (too large, or a redirect to a host that is not allowed).
"""

from __future__ import annotations

import base64
import email.utils
import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REDIRECTS = 5
_HEADERS = (
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "x-request-id",
)
_AUTHORITIES = "/etc/ssl/certs"
_HIDDEN = "[redacted]"
_CREDENTIAL_LENGTH = 4
#: The whole answer must fit into the stored part of stdout.
_ANSWER_BYTES = 1 << 20


class _UnusableAnswer(Exception):
    pass


class _Unsent(Exception):
    """The server was never reached, so nothing can have happened there."""


def main() -> None:
    order = json.loads(sys.stdin.buffer.read())
    auth = order["auth"]
    secret = "" if auth["kind"] == "none" else _secret(auth["descriptor"])
    held = _secret(auth["held"]) if auth["kind"] == "oauth" else ""
    call = _Call(order, secret, held)
    try:
        answer = call.make()
    except _UnusableAnswer as error:
        answer = {"status": None, "error": {"kind": "refused", "message": str(error)}}
    except _Unsent as error:
        answer = _broken(error, sent=False)
    except (OSError, http.client.HTTPException) as error:
        answer = _broken(error, sent=True)
    except ValueError as error:
        # An invalid port, or an invalid host name: no request is possible.
        message = f"invalid URL: {error}"
        answer = {"status": None, "error": {"kind": "refused", "message": message}}
    if call.got is not None:
        call.keep(answer["status"])
    encoded = json.dumps(call.hidden(answer), ensure_ascii=False).encode()
    if len(encoded) > _ANSWER_BYTES:
        message = f"the answer exceeds {_ANSWER_BYTES} bytes"
        answer = {"status": answer["status"], "error": {"kind": "refused", "message": message}}
        encoded = json.dumps(answer).encode()
    sys.stdout.buffer.write(encoded + b"\n")
    sys.stdout.flush()
    os._exit(_exit_code(answer))


def _spellings(credential: str) -> set[str]:
    """As is, as encoded in a URL or a form, and as some encode it in JSON."""
    carried = {urllib.parse.quote_plus(credential), urllib.parse.quote(credential, safe="")}
    return {credential, *carried, credential.replace("/", "\\/")}


def _broken(error: Exception, *, sent: bool) -> dict[str, Any]:
    message = f"{type(error).__name__}: {error}"
    return {"status": None, "error": {"kind": "transport", "message": message, "sent": sent}}


def _exit_code(answer: dict[str, Any]) -> int:
    error = answer.get("error")
    if error:
        return 2 if error["kind"] == "transport" else 3
    return 0 if 200 <= answer["status"] < 300 else 1


def _secret(variable: str) -> str:
    """The value, read from the descriptor that the variable names and closed at once."""
    descriptor = int(os.environ[variable])
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    os.close(descriptor)
    value = b"".join(parts).decode("latin-1").strip()
    if any(ord(character) < 32 for character in value):
        raise SystemExit("The secret holds a control character, which a header cannot contain.")
    return value


class _Call:
    def __init__(self, order: dict[str, Any], secret: str, held: str) -> None:
        self.order = order
        self.secret = secret
        self.held = held  #: the token of an earlier call, or ""
        self.got: dict[str, Any] | None = None  #: the answer of token_url, if requested
        self.credentials = _spellings(secret) | _spellings(held)
        self.context: ssl.SSLContext | None = None

    def hidden(self, value: Any) -> Any:
        """`value` without our credentials, in case the server echoed them."""
        if isinstance(value, dict):
            return {name: self.hidden(each) for name, each in value.items()}
        if isinstance(value, str | bytes):
            for credential in sorted(self.credentials, key=len, reverse=True):
                # Shorter credentials occur in any text; replacing them would hide nothing.
                if len(credential) < _CREDENTIAL_LENGTH:
                    continue
                if isinstance(value, bytes):
                    value = value.replace(credential.encode("latin-1"), _HIDDEN.encode())
                else:
                    value = value.replace(credential, _HIDDEN)
        return value

    def make(self) -> dict[str, Any]:
        answer = self._made()
        if self.held and answer["status"] == 401 and not answer["redirects"]:
            # The token was revoked early. The server did nothing, so this repeats no effect.
            self.held, self.got = "", {}
            answer = self._made()
        return answer

    def keep(self, status: int | None) -> None:
        """Leave the token for the next call, or report that the last one is invalid."""
        path = os.path.join(os.environ["ACTUM_ARTIFACTS"], self.order["auth"]["keep_in"])
        try:
            with open(path, "w") as file:
                json.dump({} if status == 401 else self.got, file)
        except OSError:
            return  # the next call requests its own

    def _made(self) -> dict[str, Any]:
        order, auth = self.order, self.order["auth"]
        method, url = order["method"], order["url"]
        body = base64.b64decode(order["body"]) if order["body"] is not None else None
        home = _origin(url)
        extra: dict[str, str] = {}
        if auth["kind"] == "oauth":
            token, failed = (self.held, None) if self.held else self._token(auth)
            if failed is not None:
                return failed
            extra = {"Authorization": f"Bearer {token}"}
        elif auth["kind"] == "bearer":
            extra = {"Authorization": f"Bearer {self.secret}"}
        elif auth["kind"] == "api_key" and auth["header"]:
            extra = {auth["header"]: self.secret}
        for redirects in range(_REDIRECTS + 1):
            headers = dict(order["headers"])
            sent_url = url
            if _origin(url) == home:
                headers |= extra
                if auth["kind"] == "api_key" and auth["query"]:
                    sent_url = _with_query(url, auth["query"], self.secret)
            try:
                status, found, content = self._exchange(method, sent_url, headers, body)
            except _Unsent as error:
                if redirects:  # the first host got the call and may have executed it
                    raise http.client.HTTPException(f"after a redirect: {error}") from error
                raise
            target = found.get("location")
            if status not in (301, 302, 303, 307, 308) or target is None:
                return self._answer(status, found, content, redirects)
            if status == 303 and method != "HEAD":
                method, body = "GET", None
            elif method not in ("GET", "HEAD") and status in (301, 302):
                # Clients differ in what they send to such a target: report it, do not guess.
                return self._answer(status, found, content, redirects)
            url = self._followed(url, target)
        raise _UnusableAnswer(f"more than {_REDIRECTS} redirects")

    def _followed(self, url: str, target: str) -> str:
        new = urllib.parse.urldefrag(urllib.parse.urljoin(url, target)).url
        parts = urllib.parse.urlsplit(new)
        host = (parts.hostname or "").lower()
        if parts.scheme not in ("http", "https") or parts.username is not None or not host:
            raise _UnusableAnswer("a redirect to something other than an http or https URL")
        if parts.scheme == "http" and url.startswith("https:"):
            raise _UnusableAnswer(f"a redirect from https to http at {host}")
        if not any(_covers(allowed, parts) for allowed in self.order["hosts"]):
            raise _UnusableAnswer(f"a redirect to {host}, which is not among the allowed hosts")
        return new

    def _token(self, auth: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """An access token for client credentials."""
        form = {"grant_type": "client_credentials"}
        if auth["scope"]:
            form["scope"] = auth["scope"]
        # RFC 6749 2.3.1: both parts are form-encoded before they are joined.
        pair = (
            f"{urllib.parse.quote_plus(auth['client_id'])}:{urllib.parse.quote_plus(self.secret)}"
        )
        basic = base64.b64encode(pair.encode()).decode()
        self.credentials.add(basic)
        headers = {
            "Authorization": f"Basic {basic}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        body = urllib.parse.urlencode(form).encode()
        try:
            status, found, content = self._exchange("POST", auth["token_url"], headers, body)
        except (OSError, http.client.HTTPException) as error:
            # The call itself was not made, so it may be repeated.
            raise _Unsent(f"token_url: {error}") from error
        if not 200 <= status < 300:
            return "", self._answer(status, found, content, 0) | {"at": "token_url"}
        try:
            answer = json.loads(content)
            token, lasts_s = answer["access_token"], answer.get("expires_in")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            token, lasts_s = None, None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise _UnusableAnswer("token_url gave no usable access_token")
        self.credentials |= _spellings(token)
        self.got = {"access_token": token, "expires_in": lasts_s}
        return token, None

    def _exchange(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urllib.parse.urlsplit(url)
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            if self.context is None:
                self.context = _verifying()
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, context=self.context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise _Unsent(f"{parts.hostname}: {error}") from error
            path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
            connection.request(method, path, body=body, headers=headers)
            try:
                response = connection.getresponse()
                content = response.read(self.order["max_bytes"] + 1)
            except ValueError as error:  # a negative chunk size
                raise http.client.HTTPException(f"not HTTP: {error}") from error
            if len(content) > self.order["max_bytes"]:
                raise _UnusableAnswer(f"the answer exceeds {self.order['max_bytes']} bytes")
            if response.length:
                raise http.client.IncompleteRead(content, response.length)
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, content
        finally:
            connection.close()

    def _answer(
        self, status: int, found: dict[str, str], content: bytes, redirects: int
    ) -> dict[str, Any]:
        try:
            body, encoding = content.decode(), "utf-8"
        except UnicodeDecodeError:
            # Before encoding: afterwards it could not be found.
            body, encoding = base64.b64encode(self.hidden(content)).decode(), "base64"
        return {
            "status": status,
            "headers": {
                name: value
                for name, value in sorted(found.items())
                if name in _HEADERS or name.startswith(("x-ratelimit-", "ratelimit"))
            },
            "retry_after_s": _retry_after(found),
            "redirects": redirects,
            "encoding": encoding,
            "body": body,
        }


def _verifying() -> ssl.SSLContext:
    """Checks names and certificates. The system's authorities are looked up one by one by their
    hashed file names: reading them all takes longer than the call."""
    if "SSL_CERT_FILE" in os.environ:  # the project has its own authorities
        return ssl.create_default_context()
    try:
        filed = any(name.endswith(".0") for name in os.listdir(_AUTHORITIES))
    except OSError:
        filed = False
    if not filed:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(capath=_AUTHORITIES)
    return context


def _retry_after(found: dict[str, str]) -> float | None:
    """Seconds to wait, from seconds or a date; a date is compared with the server's own clock."""
    text = found.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    until = _timestamp(text)
    if until is None:
        return None
    now = _timestamp(found.get("date", ""))
    return max(0.0, until - (time.time() if now is None else now))


def _timestamp(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urllib.parse.urlsplit(url)
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def _covers(allowed: str, parts: urllib.parse.SplitResult) -> bool:
    host, _, port = allowed.lower().partition(":")
    if port and int(port) != (parts.port or (443 if parts.scheme == "https" else 80)):
        return False
    name = (parts.hostname or "").lower()
    if host.startswith("*."):
        return name.endswith(host[1:])
    return name == host


def _with_query(url: str, name: str, value: str) -> str:
    parts = urllib.parse.urlsplit(url)
    added = urllib.parse.urlencode({name: value})
    query = f"{parts.query}&{added}" if parts.query else added
    return urllib.parse.urlunsplit(parts._replace(query=query))


if __name__ == "__main__":
    main()
