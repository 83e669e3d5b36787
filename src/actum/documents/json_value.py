"""The type of plain JSON data."""

from __future__ import annotations

from typing import Any

Json = Any  #: a JSON value; canonical encoding refuses anything else
