"""The user id of tools when the host process is root."""

from __future__ import annotations

#: The tool's uid and gid when the host process is root: above every range that distributions,
#: containers and user namespaces use, so it is no other user's. An ordinary user's tools run as
#: that user, inside a user namespace that maps no other user.
TOOL_ID = 1_900_000_001
