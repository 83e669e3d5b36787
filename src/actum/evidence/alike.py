"""What is said of a tool that ended as it did before.

Where a request came before (`evidence.draft`), and this time its tool came as close to its limits
as an earlier time, said as much and left files of the same names and sizes, the records of its end
differ from those in a few moments, durations and digests, and in what it said. They are forms too
(`evidence.forms`), made by `evidence.sealing` as all others. A tool that left many files or tried
what it may not is described anew each time.
"""

from __future__ import annotations

from collections.abc import Collection

from actum.capture.model import Capture, Enforced, Exited, Stream
from actum.capture.streams import SILENCE
from actum.contract.canonical import sha256_bytes
from actum.contract.model import NOTHING_EXPECTED, Json
from actum.contract.moments import utc_text
from actum.evidence import sealing
from actum.evidence.draft import MARKS, Draft, marked
from actum.evidence.draft import Forms as StartForms
from actum.evidence.encoding import encoded
from actum.evidence.facts import ExecutionFacts, Opened
from actum.evidence.forms import Form, Words, mark, marked_moment, marked_number, plain, shape
from actum.evidence.record import Redact, summary
from actum.evidence.sealing import Told
from actum.evidence.trace import LIFECYCLE, Recorded, TraceEvent
from actum.value import replace

_STEPS = len(LIFECYCLE)
_FILES = 4  #: at most
#: By the number of digests: the result's and the output's, two of each file, one of each stream.
#: When it ended, and when each of its events came.
_SHAPES = [shape(ids=0, digests=digests, moments=1 + _STEPS) for digests in range(5 + 2 * _FILES)]


def told(
    facts: ExecutionFacts,
    begun: Draft,
    result_sha256: str | None,
    stored: Collection[str],
    redact: Redact,
) -> Told | None:
    """As `sealing.told` does of what was cleared away whole; ``None``: ask it."""
    capture, opened, events = facts.capture, facts.opened, facts.events
    if (
        begun.forms is None
        or capture is None
        or opened is None
        or type(capture.ending) is not Exited
        or len(capture.collected) > _FILES
        or capture.not_collected
        or capture.denials
        or facts.contract.outputs is not NOTHING_EXPECTED
        or facts.violations
        or facts.refused_at is not None
        or facts.output_digest is None
        or result_sha256 is None
        or len(events) != _STEPS
    ):
        return None
    # All else that is said or judged by. Forms and rows never change and are known by identity: an
    # entry holds them, so that no other can get their place in memory while it is here.
    key: tuple[object, ...] = (
        *(id(begun.forms), id(capture.enforcement), capture.duration_ms, capture.ending.code),
        *(facts.exit_code, facts.outcome, facts.reason_codes),
    )
    digests: tuple[str, ...] = ()
    said: list[Stream] = []
    for stream in (capture.stdout, capture.stderr):
        if stream is SILENCE:
            key = (*key, None)
        elif stream.consistent:
            key = (*key, stream.total_bytes, len(stream.kept))
            digests = (*digests, stream.sha256)
            said.append(stream)
        else:
            return None
    for file in capture.collected:
        if file.blake3 not in stored:
            return None
        key = (*key, file.name, file.path, file.kind, len(file.content))
        digests = (*digests, file.sha256, file.blake3)
    known = _kept.get(key)
    if known is None:
        if len(_kept) >= _MOST:
            _kept.clear()
        _kept[key] = begun.forms, capture.enforcement, None
        return None
    first, second, third, last = events
    words = plain(
        (
            *(result_sha256, facts.output_digest, *digests, utc_text(facts.ended_at)),
            *(first.ts, second.ts, third.ts, last.ts),
        ),
        _SHAPES[2 + len(digests)],
    )
    if words is None:
        return None
    numbers = b"%d %d %d %d %d %d" % (
        *(opened.pending_seq, facts.duration_ms, first.event.duration_ms),
        *(second.event.duration_ms, third.event.duration_ms, last.event.duration_ms),
    )
    shown = [encoded(summary(stream, redact))[1:-1] for stream in said]  # within the quotes
    words = [*begun.words, *words, *numbers.split(), *shown]
    forms = known[2]
    if forms is None:
        forms = _Forms(facts, capture, begun)
        written = sealing.told(
            facts, (), begun=begun, stored=stored, redact=redact, result_sha256=result_sha256
        )
        if forms.filled(words) != written:
            forms.events = ()  # of nothing at all
        _kept[key] = begun.forms, capture.enforcement, forms
        return written
    for kept, like in zip(events, forms.events, strict=False):
        if not like.says_what(kept.event, facts.trace_id):
            return None
    return forms.filled(words) if forms.events else None


class _Forms:
    """Of what is said of such an end."""

    def __init__(self, facts: ExecutionFacts, capture: Capture, begun: Draft) -> None:
        moments = [marked_moment(1 + number) for number in range(1 + _STEPS)]
        numbers = [marked_number(number) for number in range(2 + _STEPS)]
        result_mark, output_mark = mark(10), mark(11)
        files = [
            replace(file, sha256=mark(12 + 2 * number), blake3=mark(13 + 2 * number))
            for number, file in enumerate(capture.collected)
        ]
        stdout, stderr = _marked(capture.stdout, 30), _marked(capture.stderr, 32)
        said = [stream for stream in (stdout, stderr) if stream is not SILENCE]
        facts_marked = replace(
            marked(facts),
            capture=replace(capture, collected=tuple(files), stdout=stdout, stderr=stderr),
            output_digest=output_mark,
            ended_at=moments[0],
            opened=Opened(pending_seq=numbers[0]),
            duration_ms=numbers[1],
            events=tuple(
                Recorded(
                    event=replace(
                        kept.event,
                        trace_id=MARKS[1],
                        execution_id=MARKS[0],
                        duration_ms=duration_ms,
                    ),
                    ts=utc_text(ts),
                )
                for kept, ts, duration_ms in zip(
                    facts.events, moments[1:], numbers[2:], strict=True
                )
            ),
        )
        made = sealing.told(
            facts_marked,
            (),
            begun=Draft(facts_marked, begun.shared),
            stored=[file.blake3 for file in files],
            redact=bytes,
            result_sha256=result_mark,
        )
        marks = [*MARKS, result_mark, output_mark]
        marks += [stream.sha256 for stream in said]
        for file in files:
            marks += [file.sha256, file.blake3]
        marks += [*map(utc_text, moments), *map(str, numbers)]
        marks += [summary(stream, bytes) for stream in said]
        marks += [sha256_bytes(made.events), sha256_bytes(made.record)]
        self._events = Form(made.events, marks)
        self._record = Form(made.record, marks)
        self._statement = Form(made.statement, marks)
        self._row = Form(made.row, marks)
        self._audit = Form(made.audit, marks)
        #: The events they tell of, but for moments and durations.
        self.events = tuple(_Like(kept.event) for kept in facts.events)

    def filled(self, words: Words) -> Told:
        events = self._events.filled(words)
        record = self._record.filled(words)
        words = [*words, sha256_bytes(events).encode(), sha256_bytes(record).encode()]
        statement = self._statement.filled(words)
        return Told(events, record, statement, self._row.filled(words), self._audit.filled(words))


class _Kept(bytes):
    """As long as what a tool said, and read as a mark."""

    mark: bytes

    def __getitem__(self, _part: object) -> bytes:  # type: ignore[override]
        return self.mark


class _Marked(Stream):
    @property
    def consistent(self) -> bool:
        return True  # as the one that it stands for, or there would be no form


def _marked(stream: Stream, number: int) -> Stream:
    if stream is SILENCE:
        return stream
    kept = _Kept(len(stream.kept))
    kept.mark = mark(number).encode()
    return _Marked(kept=kept, total_bytes=stream.total_bytes, sha256=mark(number + 1))


class _Like:
    """An event to compare others with."""

    __slots__ = ("_data", "_event", "_kinds")

    def __init__(self, event: TraceEvent) -> None:
        self._event = event
        #: As it is now, for it could be changed; ``None``: nothing is surely encoded as this is.
        self._data = dict(event.data) if all(map(_is_exact, event.data.values())) else None
        self._kinds = [*map(type, event.data.values())]

    def says_what(self, other: TraceEvent, trace_id: str) -> bool:
        """Whether `other`, of the execution that `trace_id` is of, says the same."""
        event, data = self._event, other.data
        return (
            other.event_type is event.event_type
            and other.trace_id == trace_id
            and other.attempt == event.attempt
            and other.tool_id == event.tool_id
            and other.runner_type == event.runner_type
            and other.container_id == event.container_id
            and other.outcome is event.outcome
            and data == self._data
            and [*map(type, data.values())] == self._kinds
        )


def _is_exact(content: Json) -> bool:
    """Whether what equals it and is of its type is encoded as it is: 1 equals True."""
    return type(content) in (int, str) or (
        type(content) is tuple and all(type(each) is str for each in content)
    )


#: By what `told` knows an end; the forms once it came again.
_kept: dict[tuple[object, ...], tuple[StartForms, tuple[Enforced, ...], _Forms | None]] = {}
_MOST = 128
