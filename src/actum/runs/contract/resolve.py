"""The one resolver of a run's configuration, for the command line, the library and workers.

    persisted configuration > requested field > preset of a requested profile
        > environment variable > default

A persisted configuration is never completed from the environment. `environ` is handed in by the
caller, who reads it once; a worker has no environment to hand in.
"""

from __future__ import annotations

from collections.abc import Mapping

from actum.contract.model import Json
from actum.errors import ContractInvalid, Problem
from actum.runs.contract.fields import DEFAULTS, FIELDS, PRESETS, Config, normalised, problems_in
from actum.value import value


@value
class Resolved:
    """A whole configuration, and which of its fields came from environment variables."""

    config: Config
    fallback: tuple[str, ...] = ()  #: sorted


def fresh(requested: Mapping[str, Json], environ: Mapping[str, str]) -> Resolved:
    """The configuration of a run that has none yet; raises `ContractInvalid`."""
    _require(requested)
    profile = requested.get("profile")
    if profile is not None:
        return Resolved(config=normalised({**PRESETS[str(profile)], **requested}))
    found = _from_environment(environ)
    used = {name: text for name, text in found.items() if name not in requested}
    config = normalised({**DEFAULTS, **used, **requested})
    return Resolved(config=config, fallback=tuple(sorted(used)))


def requested_over(persisted: Config, requested: Mapping[str, Json]) -> Config:
    """The configuration that a caller wants for a run which has one; reads no environment.

    A requested profile is built anew; requested fields alone change only themselves.
    """
    _require(requested)
    profile = requested.get("profile")
    below = persisted if profile is None else PRESETS[str(profile)]
    return normalised({**below, **requested})


def _require(requested: Mapping[str, Json]) -> None:
    problems = problems_in(requested, whole=False)
    if problems:
        raise ContractInvalid(problems)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Json]:
    """Fields whose variable is set. An empty variable counts as unset."""
    found: dict[str, Json] = {}
    problems = []
    for field in FIELDS:
        name = next((name for name in field.variables if environ.get(name)), None)
        if name is None:
            continue
        read = field.from_text(environ[name])
        if field.holds(read):
            found[field.name] = read
        else:
            problems.append(
                Problem(
                    field=field.name,
                    message=f"The environment variable {name} is {environ[name][:80]!r}. Unset it,"
                    " or correct it.",
                    value=environ[name][:80],
                    permitted=field.permitted,
                )
            )
    if problems:
        raise ContractInvalid(tuple(problems))
    return found
