"""Names by which the record that closes a work run binds its files."""

from __future__ import annotations

FILES = "files"  #: field of the record: name of a file to its SHA-256
RECEIPT = "RECEIPT.json"  #: the signed receipt, for people
BACKWARD = "backward.json"  #: how the run is undone
MET = "met"  #: folder of people's edits that recovery saved
