"""An S3-compatible server for tests: moto's, started here on loopback and gone afterwards."""

from __future__ import annotations

from buckets.proxy import Proxy
from buckets.server import Server

__all__ = ["Proxy", "Server"]
