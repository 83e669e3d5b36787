"""Verdicts about executors: the type of what is signed, for writers and for verification."""

from __future__ import annotations

PAYLOAD_TYPE = "application/vnd.actum.executor-review+json"
