"""The 13 fields of a run's configuration: their ranges, their presets, their environment names.

A value outside of its range is refused, never clamped. The order of the fields is the order of
every difference that a person reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actum.contract.model import Json
from actum.errors import ContractInvalid, Problem
from actum.value import value

SCHEMA_VERSION = 1
PROFILES = ("full", "ci", "smoke")
MODES = ("off", "warn", "enforce")
DEFAULT_PROFILE = "full"

#: A complete configuration, by the names of the seed.
Config = Mapping[str, Json]


@value
class Field:
    """One field: an integer range, a closed set of words, or a boolean."""

    name: str
    words: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    #: Environment variables that may fill the field; the first one that is set counts.
    variables: tuple[str, ...] = ()

    @property
    def permitted(self) -> str:
        if self.words:
            return ", ".join(self.words)
        if self.low is None:
            return "true or false"
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def holds(self, found: object) -> bool:
        """Whether `found` is a permitted value. `True` and `5.0` are not integers."""
        if self.words:
            return type(found) is str and found in self.words
        if self.low is None or self.high is None:
            return type(found) is bool
        return type(found) is int and self.low <= found <= self.high

    def from_text(self, text: str) -> Json:
        """The value that an environment variable or an option writes; unchanged if it is none."""
        if self.words:
            return text
        if self.low is None:
            return {"true": True, "false": False}.get(text, text)
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 16 else text


FIELDS: tuple[Field, ...] = (
    Field(name="schemaVersion", low=SCHEMA_VERSION, high=SCHEMA_VERSION),
    Field(name="profile", words=PROFILES),
    Field(name="lightValidationMode", words=MODES, variables=("AGENT_LIGHT_VALIDATION_MODE",)),
    Field(name="heavyValidationMode", words=MODES, variables=("AGENT_HEAVY_VALIDATION_MODE",)),
    Field(
        name="maxRuntimeCorrectionAttempts",
        low=0,
        high=5,
        variables=("AGENT_GOAL_MAX_CORRECTIONS", "AGENT_RUNTIME_MAX_CORRECTIONS"),
    ),
    Field(
        name="maxHeavyCorrectionAttempts",
        low=0,
        high=3,
        variables=("AGENT_OPTIMIZATION_MAX_CORRECTIONS", "AGENT_HEAVY_MAX_CORRECTIONS"),
    ),
    Field(name="correctionPolicyMode", words=MODES, variables=("AGENT_CORRECTION_POLICY_MODE",)),
    Field(
        name="correctionConvergenceMode",
        words=MODES,
        variables=("AGENT_CORRECTION_CONVERGENCE_MODE",),
    ),
    Field(
        name="plannerTimeoutMs", low=1_000, high=300_000, variables=("DEEPRUN_PLANNER_TIMEOUT_MS",)
    ),
    Field(name="maxFilesPerStep", low=1, high=100, variables=("AGENT_FS_MAX_FILES_PER_STEP",)),
    Field(
        name="maxTotalDiffBytes",
        low=1_000,
        high=10_000_000,
        variables=("AGENT_FS_MAX_TOTAL_DIFF_BYTES",),
    ),
    Field(name="maxFileBytes", low=1_000, high=20_000_000, variables=("AGENT_FS_MAX_FILE_BYTES",)),
    Field(name="allowEnvMutation", variables=("AGENT_FS_ALLOW_ENV_MUTATION",)),
)
BY_NAME: Mapping[str, Field] = {field.name: field for field in FIELDS}

#: The hard defaults: the values of the profile ``full``.
DEFAULTS: Config = {
    "schemaVersion": SCHEMA_VERSION,
    "profile": DEFAULT_PROFILE,
    "lightValidationMode": "enforce",
    "heavyValidationMode": "enforce",
    "maxRuntimeCorrectionAttempts": 5,
    "maxHeavyCorrectionAttempts": 3,
    "correctionPolicyMode": "enforce",
    "correctionConvergenceMode": "enforce",
    "plannerTimeoutMs": 120_000,
    "maxFilesPerStep": 15,
    "maxTotalDiffBytes": 400_000,
    "maxFileBytes": 1_500_000,
    "allowEnvMutation": False,
}

#: What a requested profile sets: every field, so that no variable can weaken a profile that was
#: asked for by name.
PRESETS: Mapping[str, Config] = {
    "full": DEFAULTS,
    "ci": {
        **DEFAULTS,
        "profile": "ci",
        "lightValidationMode": "off",
        "heavyValidationMode": "off",
        "maxRuntimeCorrectionAttempts": 0,
        "maxHeavyCorrectionAttempts": 0,
        "correctionPolicyMode": "warn",
        "correctionConvergenceMode": "warn",
        "plannerTimeoutMs": 5_000,
    },
    "smoke": {
        **DEFAULTS,
        "profile": "smoke",
        "lightValidationMode": "warn",
        "heavyValidationMode": "warn",
        "maxRuntimeCorrectionAttempts": 1,
        "maxHeavyCorrectionAttempts": 1,
        "correctionPolicyMode": "warn",
        "correctionConvergenceMode": "warn",
        "plannerTimeoutMs": 10_000,
    },
}


def problems_in(given: Any, *, whole: bool) -> tuple[Problem, ...]:
    """Every problem of a configuration; `whole`: all 13 fields must be there."""
    if not isinstance(given, Mapping):
        return (Problem(field="executionConfig", message="It must be a mapping of fields."),)
    found = [
        Problem(
            field=str(name)[:80],
            message="There is no such field.",
            permitted=", ".join(BY_NAME),
        )
        for name in given
        if name not in BY_NAME
    ]
    for field in FIELDS:
        if field.name not in given:
            if whole:
                found.append(Problem(field=field.name, message="It is missing."))
        elif not field.holds(given[field.name]):
            shown = repr(given[field.name])[:80]
            found.append(
                Problem(
                    field=field.name,
                    message=f"{shown} is not permitted.",
                    value=shown,
                    permitted=field.permitted,
                )
            )
    return tuple(found)


def normalised(given: Any) -> dict[str, Json]:
    """A whole configuration, in the order of the fields; raises `ContractInvalid` with every
    problem."""
    problems = problems_in(given, whole=True)
    if problems:
        raise ContractInvalid(problems)
    return {field.name: given[field.name] for field in FIELDS}
