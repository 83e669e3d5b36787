"""`Registries`: what network level `registry` means on one host.

`package_clients` reads it from the host's package clients; only calls with that level need it.
"""

from __future__ import annotations

from collections.abc import Mapping

from actum.value import field, value


@value
class Registries:
    """The hosts, and the variables by which a client inside finds them."""

    hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()  #: files that are not obeyed, each with the reason
