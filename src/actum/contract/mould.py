"""A mould: what requests in the same words have in common, worked out once.

Each of them is a contract with an id, a time and perhaps a stdin of its own. Everything else
follows from the mould: its sections, what it is remembered by, and all bytes of its digest but
these. Contracts of one mould have their mappings in common, so none of them is handed out.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from hashlib import sha256

from actum.contract.complete import Sections
from actum.contract.model import Contract
from actum.contract.moments import moment_text
from actum.contract.wire import Around, around, request_key
from actum.value import replace


class Mould:
    """Made of one contract whose id and time were filled in. Shared by threads."""

    __slots__ = ("_around", "_like", "request")

    def __init__(self, like: Contract) -> None:
        self._like = like
        self.request: Hashable | None = request_key(like)
        #: With the stdin that it is for: that is part of the digest.
        self._around: tuple[bytes | None, Around] | None = None

    @staticmethod
    def fits(sections: Sections) -> bool:
        """Whether contracts that are made of these have an id and a time of their own."""
        return {"execution_id", "metadata.requested_at"} <= sections.filled

    def contract(
        self, execution_id: str, requested_at: datetime, stdin: bytes | None = None
    ) -> Contract:
        """One more, with an id that was drawn for it; ``None``: with the stdin of the mould."""
        like = self._like
        metadata = replace(like.metadata, requested_at=requested_at)
        if stdin is None or stdin == like.inputs.stdin:
            return replace(like, execution_id=execution_id, metadata=metadata)
        inputs = replace(like.inputs, stdin=stdin)
        return replace(like, execution_id=execution_id, metadata=metadata, inputs=inputs)

    def digests(self, contract: Contract) -> tuple[str, str, str]:
        """`contract.wire.digests`, of a contract of this mould."""
        stdin, known = contract.inputs.stdin, self._around
        if known is None or known[0] != stdin:
            known = stdin, around(contract, self.request)
            if stdin is None or len(stdin) <= _MOST_STDIN:
                self._around = known
        found = known[1]
        whole = (
            found.before,
            contract.execution_id.encode(),
            found.between,
            moment_text(contract.metadata.requested_at).encode(),
            found.after,
        )
        return sha256(b"".join(whole)).hexdigest(), found.identity, found.asked


_MOST_STDIN = 16_384  #: what is longer is not remembered
