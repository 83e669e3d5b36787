"""The contract's material, its hash, and the seven metadata keys of a run.

The material is closed: exactly these seven fields. Changing anything that a run branches on changes
the configuration or one of the five versions, and so the hash.
"""

from __future__ import annotations

from collections.abc import Mapping

from actum.contract.canonical import sha256_json
from actum.contract.model import Json
from actum.runs.contract.fields import SCHEMA_VERSION, Config
from actum.runs.contract.resolve import Resolved

DETERMINISM_POLICY_VERSION = 1
PLANNER_POLICY_VERSION = 1
CORRECTION_RECIPE_VERSION = 1
VALIDATION_POLICY_VERSION = 1
#: No run branches at random, so no run has a seed.
RANDOMNESS_SEED = "forbidden:no-random-branching"

#: The versions of this code, by the material's names.
VERSIONS: Mapping[str, Json] = {
    "executionContractSchemaVersion": SCHEMA_VERSION,
    "determinismPolicyVersion": DETERMINISM_POLICY_VERSION,
    "plannerPolicyVersion": PLANNER_POLICY_VERSION,
    "correctionRecipeVersion": CORRECTION_RECIPE_VERSION,
    "validationPolicyVersion": VALIDATION_POLICY_VERSION,
    "randomnessSeed": RANDOMNESS_SEED,
}

CONFIG = "executionConfig"
SCHEMA = "executionContractSchemaVersion"
HASH = "executionContractHash"
MATERIAL = "executionContractMaterial"
EFFECTIVE = "effectiveExecutionConfig"
FALLBACK_USED = "executionContractFallbackUsed"
FALLBACK_FIELDS = "executionContractFallbackFields"
#: The metadata of a run: these keys, no others.
KEYS = (CONFIG, SCHEMA, HASH, MATERIAL, EFFECTIVE, FALLBACK_USED, FALLBACK_FIELDS)


def material_of(config: Config, versions: Mapping[str, Json] = VERSIONS) -> dict[str, Json]:
    """The closed material of a configuration under the versions of this code."""
    return {
        "executionContractSchemaVersion": versions["executionContractSchemaVersion"],
        "normalizedExecutionConfig": dict(config),
        "determinismPolicyVersion": versions["determinismPolicyVersion"],
        "plannerPolicyVersion": versions["plannerPolicyVersion"],
        "correctionRecipeVersion": versions["correctionRecipeVersion"],
        "validationPolicyVersion": versions["validationPolicyVersion"],
        "randomnessSeed": versions["randomnessSeed"],
    }


def hash_of(material: Mapping[str, Json]) -> str:
    """SHA-256 of the material's canonical JSON, in lowercase hex."""
    return sha256_json(dict(material))


def metadata_of(resolved: Resolved, versions: Mapping[str, Json] = VERSIONS) -> dict[str, Json]:
    """The seven keys of a run with this configuration."""
    config = dict(resolved.config)
    material = material_of(config, versions)
    return {
        CONFIG: config,
        SCHEMA: versions["executionContractSchemaVersion"],
        HASH: hash_of(material),
        MATERIAL: material,
        EFFECTIVE: dict(config),
        FALLBACK_USED: bool(resolved.fallback),
        FALLBACK_FIELDS: list(resolved.fallback),
    }
