"""Names right in the project's root that govern it, each with everything below it."""

from __future__ import annotations

#: There in every project (`actum init`).
ALWAYS_THERE = ("actum.toml", "tools", "tools.lock", "rules")
#: A tool could create the others.
GOVERNING = (*ALWAYS_THERE, "agents", "executors")
