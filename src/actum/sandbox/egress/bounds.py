"""Limits on the egress of one execution and on its share of the host's relay."""

from __future__ import annotations

from actum.value import value


@value
class Bounds:
    connections: int = 10_000  #: in total; each one is recorded
    at_once: int = 2_000
    large_buffers: int = 64  #: in the host's memory, not the tool's
    bytes: int = 8 << 30  #: both directions together
    questions: int = 100_000  #: to the name service, which then stops answering
    refused_names: int = 1_000  #: each recorded once
    name_streams: int = 64  #: connections to the name service at once
    lookups: int = 8  #: real resolutions at once
    connect_s: float = 10.0
    opening_s: float = 30.0  #: for the bytes that show the protocol of a connection
    listen_s: float = 5.0
    idle_names_s: float = 10.0
