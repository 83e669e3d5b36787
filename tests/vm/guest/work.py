"""Inside a machine with an older kernel: work items where the overlay engine cannot work.

Before Linux 6.3 a tmpfs has no idmapped mounts, and before 6.6 it takes no extended attributes from
an ordinary user. Three places: a project of root's on a tmpfs and one on ext4, and a user's with a
delegated subtree. Every check is one line for `tests/vm/test_work_6_1.py`.

    python work.py                     all three, at the same time, as root
    python work.py PLACE FOLDER        one of them, with its project in FOLDER
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import report

from strikes import listing, project
from strikes.cells import SOAK, Cell, Trial
from strikes.lab import ITEM_RUN, Kind, Lab, mounted_below
from strikes.listing import Listing
from strikes.strike import Ended, Signal, Target
from strikes.sweep import sweep

_UNSUPPORTED = "No overlay can be mounted over"
_KIND = Kind(ITEM_RUN, exclusive=False)
#: In the order of their moments, from the start of the command to its end. Each takes an emulated
#: machine half a minute, so all of them are struck in the soak only, and at each place.
_ALL_STRIKES = (
    (Signal.INT, Target.COMMAND),
    (Signal.KILL, Target.CHILD),
    (Signal.KILL, Target.COMMAND),
    (Signal.INT, Target.CHILD),
)
_STRIKES = _ALL_STRIKES if SOAK else _ALL_STRIKES[1:2]
#: How long a later run takes, as a share of the first one, which met empty caches. A strike that
#: comes too late because of it is tried again earlier.
_FASTER = 0.6


@dataclass(frozen=True)
class Place:
    name: str
    chosen: str  #: the engine that `auto` must take
    folder: str
    # By `make test` too. A soak undoes and strikes at each place.
    undone_and_struck: bool = False


ROOT_TMPFS = Place("root on tmpfs", "copy", "/tmp/root")
ROOT_EXT4 = Place("root on ext4", "overlay", "/tmp/disk/root", undone_and_struck=True)
USER_TMPFS = Place("user on tmpfs", "copy", "/tmp/user")
PLACES = {place.name: place for place in (ROOT_TMPFS, ROOT_EXT4, USER_TMPFS)}


def checks(place: Place, folder: Path) -> None:
    def tell(check: str, wrong: object, seen: object = "") -> None:
        report.tell(
            place.name, check, not wrong, wrong or (seen, f"{time.monotonic() - began:.0f} s")
        )

    began = time.monotonic()
    lab = Lab(folder, "auto", history=False)
    try:
        unharmed = lab.unharmed(_KIND)
        ran = _receipt(lab.project)
        engine = ran["isolation"]["engine"]
        plain = _expected(lab, unharmed.template, unharmed.before)
        expected = {"overlay": plain, "copy": _moved_apart(plain)}
        tell("auto takes the engine that works", engine != place.chosen and engine, engine)
        tell("auto does the work exactly", listing.difference(expected[engine], unharmed.after))
        tell("files come out with the project's owner", _strangers(unharmed.before, unharmed.after))
        if SOAK or place.undone_and_struck:
            undone = lab.start((*project.ACTUM, "undo", ran["receipt_id"]), None)
            wrong = [] if undone.exit_code == 0 else [undone.said]
            wrong += listing.difference(_separated(unharmed.before, unharmed.after), _now(lab))
            tell("undo brings back what was there", wrong)
        if place.chosen == "copy":
            tell("overlay is refused, nothing is lost", _refused(lab, unharmed.before))
        # The first run met empty caches; the ones to come take as long as the last.
        faster = _FASTER
        if SOAK:
            if place.chosen == "overlay":
                tell("overlay does the same", _with(lab, "overlay", expected["overlay"])[0])
            wrong, ended = _with(lab, "copy", expected["copy"])
            tell("copy does the same", wrong)
            faster = ended.lives[Target.COMMAND] / unharmed.lives[Target.COMMAND]
        if SOAK or place.undone_and_struck:
            tally = sweep(lab, _trials(faster))
            tell("struck, wholly before or wholly after", tally.failures, tally.figure())
            missed = f"{tally.struck} struck, {tally.missed} missed"
            tell("as often as planned", tally.struck != len(_STRIKES) and missed, missed)
        tell("nothing stays mounted", mounted_below(folder))
    finally:
        lab.close()


def _trials(faster: float) -> list[Trial]:
    return [
        Trial(Cell(_KIND, number, target), faster * (at + 0.5) / len(_STRIKES))
        for at, (number, target) in enumerate(_STRIKES)
    ]


def _expected(lab: Lab, template: Path, before: Listing) -> Listing:
    """What the agent's program makes of a plain copy, without Actum."""
    plain = lab.folder / "plain"
    project.copy(template, plain)
    try:
        (step,) = project.steps("agent-1")
        subprocess.run(["sh", "-s"], input=step["stdin"], text=True, cwd=plain, check=True)
        found = dict(listing.take(plain))
    finally:
        project.remove(plain)
    # A write to one of several names changes that name only.
    for name in (b"pair-written-1", b"pair-written-2"):
        found[name] = found[name]._replace(first_name=name)
    found[b"pair-written-2"] = before[b"pair-written-2"]._replace(first_name=b"pair-written-2")
    return found


def _moved_apart(plain: Listing) -> Listing:
    """The copy engine copies each of several names: when both are moved, each is a file."""
    name = b"moved/pair-2"
    return {**plain, name: plain[name]._replace(first_name=name)}


def _separated(before: Listing, after: Listing) -> Listing:
    """`before`, where each name that the item changed is a file of its own."""
    changed = {path for path, entry in before.items() if after.get(path) != entry}
    others: dict[bytes, bytes] = {}
    for path in sorted(before.keys() - changed):
        others.setdefault(before[path].first_name, path)
    return {
        path: entry
        if entry.kind == "folder"
        else entry._replace(first_name=path if path in changed else others[entry.first_name])
        for path, entry in before.items()
    }


def _strangers(before: Listing, after: Listing) -> list[str]:
    """New names whose owner is not the project's."""
    owner = before[b"."].uid, before[b"."].gid
    new = {path: entry for path, entry in after.items() if path not in before}
    found = [
        f"{path!r} is owned by {entry.uid}:{entry.gid}"
        for path, entry in new.items()
        if (entry.uid, entry.gid) != owner and not path.endswith(b"of-another")
    ]
    return found if new else ["there is no new name"]


def _with(lab: Lab, engine: str, expected: Listing) -> tuple[list[str], Ended]:
    """What is wrong with the same item on an engine that was asked for, and how it ended."""
    ended = _run(lab, engine)
    found = _receipt(lab.project)["isolation"]["engine"] if ended.exit_code == 0 else ended.said
    named = [] if found == engine else [f"not by {engine}: {found}"]
    return [*named, *ended.problems, *listing.difference(expected, _now(lab))], ended


def _refused(lab: Lab, before: Listing) -> list[str]:
    ended = _run(lab, "overlay")
    said = [] if ended.exit_code and _UNSUPPORTED in ended.said else [ended.said]
    return [*said, *lab.judge(_KIND, ended)[1], *listing.difference(before, _now(lab))]


def _run(lab: Lab, engine: str) -> Ended:
    lab.restore(lab.unharmed(_KIND).template)
    words = ("item", "run", "--engine", engine, "items/item.yaml")
    return lab.start((*project.ACTUM, *words), None)


def _now(lab: Lab) -> Listing:
    return listing.take(lab.project)


def _receipt(at: Path) -> dict[str, Any]:
    """What the only run of the item in this project has on record."""
    found = []
    for path in (at / ".actum/receipts/work").glob("*/RECEIPT.json"):
        envelope = json.loads(path.read_bytes())
        predicate = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
        if predicate["work_item"]["id"] == project.ITEM["id"]:
            found.append(predicate)
    (only,) = found
    return only


def _delegate(pid: int) -> None:
    words = ["host", "delegate", "--user", str(report.USER), "--pid", str(pid)]
    subprocess.run([*project.ACTUM, *words], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Root's two places write to files, so that lines of one process never meet another's."""
    here = os.path.abspath(__file__)
    with tempfile.TemporaryFile("w+") as tmpfs, tempfile.TemporaryFile("w+") as ext4:
        started = [
            subprocess.Popen([sys.executable, here, place.name], stdout=file, stderr=file)
            for place, file in ((ROOT_TMPFS, tmpfs), (ROOT_EXT4, ext4))
        ]
        report.as_user(here, USER_TMPFS.name, _delegate)
        for process, file in zip(started, (tmpfs, ext4), strict=True):
            process.wait()
            file.seek(0)
            print(file.read(), flush=True)


def at_place(place: Place, folder: str) -> None:
    if os.geteuid() != 0:
        report.await_word()
    os.mkdir(folder)
    checks(place, Path(folder))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        chosen = PLACES[sys.argv[1]]
        at_place(chosen, sys.argv[2] if len(sys.argv) > 2 else chosen.folder)
    else:
        main()
