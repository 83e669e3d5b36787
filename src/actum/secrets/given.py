"""`Secrets`: gives the runner the values for a start. Values live as long as one start; an access
token obtained with one lives until it expires (`tokens`).

`policy.secret_grants` decided before which secrets a call may have; the plan's proof includes it.
Here a name becomes a value, or the start is refused with the name and the remedy.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping

from actum.contract.call import SecretUse
from actum.errors import Refused, Violation
from actum.secrets.sources import Source, Unavailable
from actum.secrets.tokens import Tokens
from actum.value import field, replace, value


@value(kw_only=False)
class Given:
    """The values for one start. Never printed, compared, stored or digested."""

    values: Mapping[str, bytes] = field(repr=False)  #: by the secret's name
    environment: Mapping[str, str] = field(repr=False)  #: variables that carry a value
    descriptors: tuple[bytes, ...] = field(repr=False)  #: passed as descriptors 3, 4, …
    tokens: Tokens | None = field(default=None, repr=False, compare=False)
    token_key: bytes = field(default=b"", repr=False, compare=False)
    since: float = field(default=0.0, compare=False)

    def __bool__(self) -> bool:
        return bool(self.values)

    def keep_token(self, answer: bytes) -> None:
        """Cache the token for the next start of the same holder, if one was requested."""
        if self.tokens is not None:
            self.tokens.put(self.token_key, answer, self.since)


NOTHING = Given({}, {}, ())


class Secrets:
    """The secrets of a project, by name."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        project: str = "",
        writable: Callable[[], Iterable[str]] = tuple,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._sources = sources
        self._project = project
        self._writable = writable  #: paths that tools may write, also outside the project
        self._environment = os.environ if environment is None else environment
        self._tokens = Tokens()

    def require(self, uses: Iterable[SecretUse]) -> None:
        """Refuse what would be refused at the start, without running a command."""
        violations = []
        for use in uses:
            from actum.secrets.providers import require_usable

            try:
                source = self._source(use.name)
                require_usable(source, self._environment, self._project, self._writable())
            except Unavailable as why:
                violations.append(self._missing(use.name, why))
        _refuse(violations)

    def give(self, uses: Iterable[SecretUse], holder: str = "") -> Given:
        """The values for one start; raises `Refused` if one is not available.

        `holder` names the tool and adapter that start; tokens are cached for it alone.
        """
        uses = tuple(uses)
        if not uses:
            return NOTHING
        _no_core_of_ours()
        values: dict[str, bytes] = {}
        violations = []
        for use in uses:
            if use.token:
                continue
            try:
                values[use.name] = self._value(use)
            except Unavailable as why:
                violations.append(self._missing(use.name, why))
        _refuse(violations)
        given = Given(
            values,
            {u.variable: os.fsdecode(values[u.name]) for u in uses if not u.by_descriptor},
            tuple(values[u.name] for u in uses if u.by_descriptor),
        )
        return self._with_token(given, uses, holder) if any(u.token for u in uses) else given

    def _with_token(self, given: Given, uses: tuple[SecretUse, ...], holder: str) -> Given:
        (name,) = (use.name for use in uses if use.token)
        key = self._tokens.key(holder, given.values[name])
        token = self._tokens.get(key)
        return replace(
            given,
            values=given.values if token is None else {**given.values, f"{name}.token": token},
            descriptors=tuple(
                (token or b"") if use.token else given.values[use.name]
                for use in uses
                if use.by_descriptor
            ),
            tokens=self._tokens,
            token_key=key,
            since=time.monotonic(),
        )

    def _value(self, use: SecretUse) -> bytes:
        from actum.secrets.providers import fetch  # most executions have no secrets

        source = self._source(use.name)
        value = fetch(source, self._environment, self._project, self._writable())
        if b"\0" in value and not use.by_descriptor:
            raise Unavailable("a variable cannot contain a NUL byte; request it as fd")
        return value

    def _source(self, name: str) -> Source:
        source = self._sources.get(name)
        if source is None:
            raise Unavailable("no source is configured")
        return source

    def _missing(self, name: str, why: Unavailable) -> Violation:
        source = self._sources.get(name)
        where = f" (from {source})" if source is not None else ""
        remedy = "correct it" if source else f'add {name} = {{ env = "…" }} there'
        return Violation(
            code=why.code,
            field=f"inputs.secrets.{name}",
            value="",
            message=f"The secret {name}{where} is not available: {why}. See [secrets] in"
            f" actum.toml: {remedy}.",
        )


def _refuse(violations: list[Violation]) -> None:
    if violations:
        text = " ".join(violation.message for violation in violations)
        raise Refused(violations[0].code, text, violations=tuple(violations))


def _no_core_of_ours() -> None:
    """Disable core dumps: this process now holds secret values.

    1, not 0: at 0 the kernel still pipes the memory to the host's core dump handler, if any.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft > 1 or soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_CORE, (1, hard))
