"""Makes one HTTP call inside a sandbox. This file is the program; its order comes on stdin.

Run by a bare `python3 -I`, so it needs nothing but the standard library and imports nothing of
ours. The order is JSON (see `adapters/api.py`), the answer is one JSON document on stdout. What it
may reach is decided by the sandbox around it; its own look at redirects keeps credentials where
they belong and says early what would be refused anyway. Certificates are always verified.

Exit codes: 0 a status of 2xx; 1 any other status; 2 the other side was not reached or broke off;
3 an answer that is not to be had (too large, or a redirect to somewhere else).
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
_TOLD = ("content-type", "etag", "last-modified", "link", "location", "retry-after", "x-request-id")
_AUTHORITIES = "/etc/ssl/certs"
_HIDDEN = "[redacted]"
_CREDENTIAL_LENGTH = 4
#: The answer as a whole must fit into what is kept of stdout.
_ANSWER_BYTES = 1 << 20


class _NotToBeHad(Exception):
    pass


class _Unsent(Exception):
    """The other side was never reached, so nothing can have happened there."""


def main() -> None:
    order = json.loads(sys.stdin.buffer.read())
    auth = order["auth"]
    secret = "" if auth["kind"] == "none" else _secret(auth["descriptor"])
    held = _secret(auth["held"]) if auth["kind"] == "oauth" else ""
    call = _Call(order, secret, held)
    try:
        answer = call.make()
    except _NotToBeHad as error:
        answer = {"status": None, "error": {"kind": "refused", "message": str(error)}}
    except _Unsent as error:
        answer = _broken(error, sent=False)
    except (OSError, http.client.HTTPException) as error:
        answer = _broken(error, sent=True)
    except ValueError as error:
        # A port that is none, a name that no label can carry: nobody could be asked.
        message = f"an address that cannot be used: {error}"
        answer = {"status": None, "error": {"kind": "refused", "message": message}}
    if call.got is not None:
        call.keep(answer["status"])
    encoded = json.dumps(call.hidden(answer), ensure_ascii=False).encode()
    if len(encoded) > _ANSWER_BYTES:
        message = f"the answer is over {_ANSWER_BYTES} bytes"
        answer = {"status": answer["status"], "error": {"kind": "refused", "message": message}}
        encoded = json.dumps(answer).encode()
    sys.stdout.buffer.write(encoded + b"\n")
    sys.stdout.flush()
    os._exit(_exit_code(answer))


def _spellings(credential: str) -> set[str]:
    """As it is, as an address or a form carries it, and as some write it in JSON."""
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
    """The value, read from the descriptor that the named variable holds, and closed at once."""
    descriptor = int(os.environ[variable])
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    os.close(descriptor)
    value = b"".join(parts).decode("latin-1").strip()
    if any(ord(character) < 32 for character in value):
        raise SystemExit("The secret holds a control character, which no header can carry.")
    return value


class _Call:
    def __init__(self, order: dict[str, Any], secret: str, held: str) -> None:
        self.order = order
        self.secret = secret
        self.held = held  #: a token that an earlier call got, or ""
        self.got: dict[str, Any] | None = None  #: what token_url said, if it was asked
        self.credentials = _spellings(secret) | _spellings(held)
        self.context: ssl.SSLContext | None = None

    def hidden(self, value: Any) -> Any:
        """`value` without what proves who we are, should the other side have echoed it."""
        if isinstance(value, dict):
            return {name: self.hidden(each) for name, each in value.items()}
        if isinstance(value, str | bytes):
            for credential in sorted(self.credentials, key=len, reverse=True):
                # What is shorter is found in any text, and hides nothing from anybody.
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
            # Taken back before its time. Nothing was done for it, so asking again is no repetition.
            self.held, self.got = "", {}
            answer = self._made()
        return answer

    def keep(self, status: int | None) -> None:
        """Leave the token for the next call, or word that the last one is no good."""
        path = os.path.join(os.environ["ACTUM_ARTIFACTS"], self.order["auth"]["keep_in"])
        try:
            with open(path, "w") as file:
                json.dump({} if status == 401 else self.got, file)
        except OSError:
            return  # the next call asks for one of its own

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
                if redirects:  # the first host had the call, and may have done it
                    raise http.client.HTTPException(f"after a redirect: {error}") from error
                raise
            target = found.get("location")
            if status not in (301, 302, 303, 307, 308) or target is None:
                return self._answer(status, found, content, redirects)
            if status == 303 and method != "HEAD":
                method, body = "GET", None
            elif method not in ("GET", "HEAD") and status in (301, 302):
                # What a client should send there is not agreed upon: it is told, not guessed.
                return self._answer(status, found, content, redirects)
            url = self._followed(url, target)
        raise _NotToBeHad(f"more than {_REDIRECTS} redirects")

    def _followed(self, url: str, target: str) -> str:
        new = urllib.parse.urldefrag(urllib.parse.urljoin(url, target)).url
        parts = urllib.parse.urlsplit(new)
        host = (parts.hostname or "").lower()
        if parts.scheme not in ("http", "https") or parts.username is not None or not host:
            raise _NotToBeHad("a redirect to what is no plain http or https address")
        if parts.scheme == "http" and url.startswith("https:"):
            raise _NotToBeHad(f"a redirect from https to http at {host}")
        if not any(_covers(allowed, parts) for allowed in self.order["hosts"]):
            raise _NotToBeHad(f"a redirect to {host}, which is not among the allowed hosts")
        return new

    def _token(self, auth: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """An access token for client credentials."""
        form = {"grant_type": "client_credentials"}
        if auth["scope"]:
            form["scope"] = auth["scope"]
        # As RFC 6749 2.3.1 has it: both parts form-encoded before they are joined.
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
            # The call itself was not made, so it may be made again.
            raise _Unsent(f"token_url: {error}") from error
        if not 200 <= status < 300:
            return "", self._answer(status, found, content, 0) | {"at": "token_url"}
        try:
            told = json.loads(content)
            token, lasts_s = told["access_token"], told.get("expires_in")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            token, lasts_s = None, None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise _NotToBeHad("token_url gave no usable access_token")
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
            except ValueError as error:  # of a chunk that is shorter than nothing
                raise http.client.HTTPException(f"not HTTP: {error}") from error
            if len(content) > self.order["max_bytes"]:
                raise _NotToBeHad(f"the answer is over {self.order['max_bytes']} bytes")
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
            # Before it is encoded: nobody would find it afterwards.
            body, encoding = base64.b64encode(self.hidden(content)).decode(), "base64"
        return {
            "status": status,
            "headers": {
                name: value
                for name, value in sorted(found.items())
                if name in _TOLD or name.startswith(("x-ratelimit-", "ratelimit"))
            },
            "retry_after_s": _retry_after(found),
            "redirects": redirects,
            "encoding": encoding,
            "body": body,
        }


def _verifying() -> ssl.SSLContext:
    """Names and certificates are checked. The system's authorities are looked up one by one, where
    they are filed for that: to read them all takes longer than the call."""
    if "SSL_CERT_FILE" in os.environ:  # the project has authorities of its own
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
    until = _moment(text)
    if until is None:
        return None
    now = _moment(found.get("date", ""))
    return max(0.0, until - (time.time() if now is None else now))


def _moment(text: str) -> float | None:
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
