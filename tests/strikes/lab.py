"""What the trials of one engine need: templates, what each command leads to, and how long it takes.

Every kind of command runs once unharmed first. What it left is what a struck one may lead to.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import listing, project, strike
from .listing import Listing
from .strike import Blow, Ended, Target

_HOOKS = Path(__file__).with_name("hooks")
_INSPECTOR = Path(__file__).with_name("inspector.py")
#: Parts of the home whose files must survive: keys, receipts, and what an undo puts back.
_KEYS, _EVIDENCE = "keys", ("receipts", "evidence", "work")

#: Words of `actum work` about one item, and of `actum item run` about its own.
_OF_GRAPH = re.compile(r"^\S+ (\w+) (success|failure|denied|timeout) ·", re.MULTILINE)
_COMPLETE, _FAILED = "Work item complete", "Work item failed"
_VERIFIED = "Replay successful: hash verified"

ITEM_RUN, WORK, UNDO, REPLAY = COMMANDS = ("item-run", "work", "undo", "replay")


@dataclass(frozen=True)
class Kind:
    """A command on one kind of project; trials of one kind differ only in how they are struck."""

    command: str
    exclusive: bool


@dataclass(frozen=True)
class Unharmed:
    """What a command does when nothing strikes it."""

    words: tuple[str, ...]
    template: Path
    runs: frozenset[str]  #: ids of the runs that are on record before
    items: frozenset[str]  #: ids of the items that it commits
    keys: Mapping[str, str]
    evidence: Mapping[str, str]
    before: Listing
    after: Listing
    lives: Mapping[Target, float]
    leads_to: Callable[[frozenset[str]], Listing | None]  #: by ids of the items that succeeded


class Lab:
    def __init__(
        self, folder: Path, engine: str, place: Path | None = None, *, history: bool = True
    ) -> None:
        self.folder = folder
        self.engine = engine
        self._history = history  #: of the project before the first trial
        self.project = place or folder / "project"
        self._unharmed: dict[Kind, Unharmed] = {}
        self._fresh: dict[bool, Path] = {}
        self._done: dict[bool, tuple[Path, dict[str, Any]]] = {}
        self._inspector: subprocess.Popen[str] | None = None
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self._temporary)}

    def unharmed(self, kind: Kind) -> Unharmed:
        if kind not in self._unharmed:
            self._unharmed[kind] = self._measured(kind)
        return self._unharmed[kind]

    def _measured(self, kind: Kind) -> Unharmed:
        if kind.command in (UNDO, REPLAY):
            template, result = self._done_template(kind.exclusive)
        else:
            template, result = self._fresh_template(kind.exclusive), {}
        words = self._words(kind.command, result)
        self.restore(template)
        before, runs = listing.take(self.project), self.inspect()["runs"]
        self.restore(template)
        ended = self.start(words, None)
        # A replay script verifies first and then fails to remove folders that are closed to their
        # owner.
        assert ended.exit_code == 0 or _VERIFIED in ended.said, ended.said
        assert ended.problems == (), ended.problems
        after = listing.take(self.project)
        home = template / ".actum"
        new = [run for run in self.inspect()["runs"] if run not in runs]
        return Unharmed(
            words=words,
            template=template,
            runs=frozenset(run["run_id"] for run in runs),
            items=frozenset(run["item_id"] for run in new),
            keys=listing.digests(home / _KEYS),
            evidence=_evidence(home),
            before=before,
            after=after,
            lives=ended.lives,
            leads_to=_outcomes(kind.command, before, after, [run["item_id"] for run in new]),
        )

    def _words(self, command: str, done: Mapping[str, Any]) -> tuple[str, ...]:
        if command == ITEM_RUN:
            return (*project.ACTUM, "item", "run", "--engine", self.engine, "items/item.yaml")
        if command == WORK:
            return (*project.ACTUM, "work", "items/work.yaml")
        if command == UNDO:
            return (*project.ACTUM, "undo", done["receipt_id"])
        return ("bash", done["proof_script"])

    def _fresh_template(self, exclusive: bool) -> Path:
        if exclusive not in self._fresh:
            settings = f"\n[work]\nexclusive = {str(exclusive).lower()}\n"
            settings += f'engine = "{self.engine}"\n'
            self.clear()
            project.make(self.project, settings, history=self._history)
            self._fresh[exclusive] = self._set_aside(f"fresh-{exclusive}")
        return self._fresh[exclusive]

    def _done_template(self, exclusive: bool) -> tuple[Path, dict[str, Any]]:
        """The project after a success of the item, with its result."""
        if exclusive not in self._done:
            self.restore(self._fresh_template(exclusive))
            words = ("item", "run", "--engine", self.engine, "items/item.yaml")
            result = project.actum(self.project, *words, json_wanted=True)
            self._require_kind(Path(result["receipt_path"]), exclusive)
            self._done[exclusive] = (self._set_aside(f"done-{exclusive}"), result)
        return self._done[exclusive]

    def _require_kind(self, receipt: Path, exclusive: bool) -> None:
        """The settings took effect, or the trials would be of another kind than they say."""
        payload = base64.b64decode(json.loads(receipt.read_bytes())["payload"])
        isolation = json.loads(payload)["predicate"]["isolation"]
        assert isolation["engine"] == self.engine, isolation
        assert isolation["state_by"] == ("index" if exclusive else "scan"), isolation

    def _set_aside(self, name: str) -> Path:
        template = self.folder / name
        project.copy(self.project, template)  # it may lie on another file system
        self.clear()
        return template

    def restore(self, template: Path) -> None:
        self.clear()
        project.copy(template, self.project)

    def clear(self) -> None:
        if os.path.lexists(self.project):
            assert not mounted_below(self.project), "the project is still mounted"
            project.remove(self.project)
        for left in self._temporary.iterdir():  # a killed replay leaves its folder there
            project.remove(left)

    def start(
        self, words: Sequence[str], blow: Blow | None, more: Mapping[str, str] | None = None
    ) -> Ended:
        environment = {**self.environment, **(more or {})}
        return strike.run(words, self.project, blow, environment=environment)

    def inspect(self) -> dict[str, Any]:
        """Open the project in a new process, which recovers; what it found there."""
        if self._inspector is None:
            self._inspector = subprocess.Popen(
                [sys.executable, str(_INSPECTOR)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self.environment,
                cwd="/",
            )
        assert self._inspector.stdin is not None and self._inspector.stdout is not None
        self._inspector.stdin.write(json.dumps(str(self.project)) + "\n")
        self._inspector.stdin.flush()
        answer: dict[str, Any] = json.loads(self._inspector.stdout.readline())
        return answer

    def judge(self, kind: Kind, ended: Ended) -> tuple[frozenset[str], list[str]]:
        """(items that were committed, everything that is wrong) after a command has ended."""
        unharmed = self.unharmed(kind)
        wrong = list(ended.problems)
        if mounted_below(self.project):
            wrong.append("something of the project is still mounted")
        report = self.inspect()
        wrong += report["wrong"]
        new = [run for run in report["runs"] if run["run_id"] not in unharmed.runs]
        succeeded = frozenset(run["item_id"] for run in new if run["status"] == "success")
        if ended.exit_code == 0 and kind.command != REPLAY and succeeded != unharmed.items:
            wrong.append(f"exit code 0, and only {sorted(succeeded)} on record as a success")
        if kind.command == REPLAY and new:
            wrong.append("the replay is on record as a run")
        if len(report["runs"]) - len(new) != len(unharmed.runs):
            wrong.append("an earlier run is gone from the record")
        wrong += _untrue(ended, succeeded)
        found = listing.take(self.project)
        expected = unharmed.leads_to(succeeded)
        if expected is None:
            wrong.append(f"{sorted(succeeded)} succeeded, which no order of commits leads to")
        else:
            wrong += listing.difference(expected, found)
        if gone := listing.lost(unharmed.before, unharmed.after, found):
            wrong.append(f"LOST: {gone} entries that the command does not remove")
        home = self.project / ".actum"
        if listing.digests(home / _KEYS) != unharmed.keys:
            wrong.append("the keys are not the same")
        evidence = _evidence(home)
        changed = [name for name, was in unharmed.evidence.items() if evidence.get(name) != was]
        if changed:
            wrong.append(f"earlier evidence is gone or changed: {', '.join(changed[:3])}")
        return succeeded, wrong

    def runs_next(self) -> list[str]:
        """What is wrong with the next work item on the project."""
        ended = self.start((*project.ACTUM, "item", "run", "items/next.yaml"), None)
        made = self.project / "deep/next"
        if ended.exit_code == 0 and made.is_file() and not ended.problems:
            return []
        return [f"the next item ended with {ended.exit_code}: {ended.said}", *ended.problems]

    def close(self) -> None:
        if self._inspector is not None:
            assert self._inspector.stdin is not None and self._inspector.stdout is not None
            self._inspector.stdin.close()
            self._inspector.wait()
            self._inspector.stdout.close()
        for template in (*self._fresh.values(), *(path for path, _ in self._done.values())):
            project.remove(template)
        self.clear()


def hooks(**wishes: object) -> dict[str, str]:
    """The environment that loads `hooks/` into the work item's own process."""
    folders = [str(_HOOKS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(folders), "ACTUM_TEST_HOOKS": json.dumps(wishes)}


def mounted_below(place: Path) -> bool:
    """Whether this namespace has a mount at or below one path. Looks at nothing else."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        points = [line.split(" ")[4] for line in table]
    return any(point == str(place) or point.startswith(f"{place}/") for point in points)


def _untrue(ended: Ended, succeeded: frozenset[str]) -> list[str]:
    """What the command said of its items and the record does not bear out. A command that ended
    with a fault or a signal has said nothing."""
    claims = {name: status == "success" for name, status in _OF_GRAPH.findall(ended.said)}
    if _FAILED in ended.said:
        claims[project.ITEM["id"]] = False
    elif _COMPLETE in ended.said:
        claims[project.ITEM["id"]] = True
    wrong = [
        f"the command said that {name} {'succeeded' if claim else 'failed'}, which is not true"
        for name, claim in claims.items()
        if claim != (name in succeeded)
    ]
    if ended.exit_code == 0 and not all(claims.values()):
        wrong.append("the command said that an item failed, and its exit code is 0")
    return wrong


def _evidence(home: Path) -> dict[str, str]:
    found = {}
    for part in _EVIDENCE:
        for name, digest in listing.digests(home / part).items():
            if part != "work" or "/kept/" in name:
                found[f"{part}/{name}"] = digest
    return found


def _outcomes(
    command: str, before: Listing, after: Listing, items: Sequence[str]
) -> Callable[[frozenset[str]], Listing | None]:
    """Which listing belongs to which items on record as a success."""
    if command != WORK:
        known = {frozenset[str](): before}
        if command != REPLAY:
            known[frozenset(items)] = after
        return known.get

    def of_graph(succeeded: frozenset[str]) -> Listing | None:
        if "joined" in succeeded and not {"left", "right"} <= succeeded:
            return None
        folders = {project.GRAPH_FOLDERS[name] for name in succeeded}
        paths = before.keys() | after.keys()
        chosen = {path: after if path.split(b"/")[0] in folders else before for path in paths}
        return {path: side[path] for path, side in chosen.items() if path in side}

    return of_graph
