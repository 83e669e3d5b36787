"""How much of the outside one execution may use, and of the host's relay while it does."""

from __future__ import annotations

from actum.value import value


@value
class Bounds:
    connections: int = 10_000  #: in all; each one is on record
    at_once: int = 2_000
    large_buffers: int = 64  #: they are the host's memory, not the tool's
    bytes: int = 8 << 30  #: both directions together
    questions: int = 100_000  #: to the name service; it falls silent afterwards
    refused_names: int = 1_000  #: each on record once
    name_streams: int = 64  #: connections to the name service at once
    lookups: int = 8  #: real resolutions at once
    connect_s: float = 10.0
    listen_s: float = 5.0
    idle_names_s: float = 10.0
