"""Who a tool is, where root asks for it."""

from __future__ import annotations

#: The tool's uid and gid when the host process is root: above every range that distributions,
#: containers and user namespaces hand out, so it maps to nobody. An ordinary user's tools run as
#: that user, inside a user namespace that maps nobody else.
TOOL_ID = 1_900_000_001
