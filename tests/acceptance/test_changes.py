"""What a person at a terminal sees of an execution's changes, decides about them, and undoes."""

from __future__ import annotations

from blake3 import blake3

from .terminal import Answer, Terminal


def _run(project: Terminal, script: str, *words: str) -> Answer:
    return project.actum("exec", "shell", "--stdin", "-", *words, stdin=script.encode())


def _notes(answer: Answer) -> list[str]:
    """What stands below the summary line."""
    first, *notes = answer.aside.splitlines()
    assert first.startswith("actum: SUCCEEDED")
    return [note.strip() for note in notes]


def test_what_was_changed_is_one_line_and_nothing_is_none(fresh: Terminal) -> None:
    quiet = _run(fresh, "echo said")
    assert (quiet.text, _notes(quiet)) == ("said\n", [])
    loud = _run(fresh, "echo said; echo x > new; mkdir folder")
    (kept,) = fresh.json("diff").json["changes"]
    assert loud.text == "said\n"
    assert _notes(loud) == [
        f"changes committed: 2 created. `actum diff {kept['execution_id']}` shows them."
    ]


def test_the_document_tells_the_state_the_counts_and_the_digest(fresh: Terminal) -> None:
    (fresh.folder / "old").write_text("one\n")
    (fresh.folder / "gone").write_text("x")
    found = fresh.shell("echo two >> old; rm gone; echo x > new").json
    (kept,) = fresh.json("diff").json["changes"]
    assert found["workspace"]["state"] == "committed"
    counts = [found["workspace"][name] for name in ("created", "modified", "deleted")]
    assert counts == [1, 1, 1]
    assert found["workspace"]["diff_sha256"] == kept["diff_sha256"]
    assert fresh.shell("true").json["workspace"]["state"] == "unchanged"


def test_a_diff_shows_the_lines_and_an_undo_brings_everything_back(fresh: Terminal) -> None:
    (fresh.folder / "old").write_text("one\n")
    execution = fresh.shell("echo two >> old; mkdir d; echo x > d/new").json["execution_id"]
    shown = fresh.actum("diff", execution).text.splitlines()
    assert shown[0] == f"{execution}: committed"
    assert {"  +two", "  +x"} <= set(shown)
    undone = fresh.actum("undo", execution)
    assert (undone.code, undone.text) == (0, f"Undone: {execution}, 3 paths are as before.\n")
    assert (fresh.folder / "old").read_text() == "one\n"
    assert not (fresh.folder / "d").exists()
    again = fresh.actum("undo", execution)
    assert again.code == 3
    assert "TRANSACTION_NOT_COMMITTED" in again.aside


def test_an_undo_of_what_left_nothing_says_so(fresh: Terminal) -> None:
    execution = fresh.shell("true").json["execution_id"]
    answer = fresh.json("undo", execution)
    assert answer.code == 3
    assert answer.json["error"]["code"] == "UNDO_UNKNOWN"


def test_ask_shows_the_changes_first_and_they_are_committed_or_dropped(fresh: Terminal) -> None:
    for decision, exists in (("--commit", True), ("--discard", False)):
        notes = _notes(_run(fresh, "echo x > new", "--overlay", "ask"))
        assert not (fresh.folder / "new").exists()
        kept = fresh.json("diff").json["changes"][-1]
        execution = kept["execution_id"]
        assert kept["state"] == "held"
        assert notes == [
            f"changes held: 1 created. `actum diff {execution}` shows them.",
            f"`actum diff {execution} --commit` or `--discard` decides.",
        ]
        assert "  +x" in fresh.actum("diff", execution).text.splitlines()
        assert fresh.actum("diff", execution, decision).code == 0
        assert (fresh.folder / "new").exists() == exists
        if exists:
            assert fresh.actum("undo", execution).code == 0


def test_discard_drops_them_and_points_nowhere(fresh: Terminal) -> None:
    notes = _notes(_run(fresh, "echo x > new", "--overlay", "discard"))
    assert notes == ["changes discarded: 1 created."]
    assert not (fresh.folder / "new").exists()
    assert fresh.json("diff").json["changes"] == []


def _held(project: Terminal, script: str) -> tuple[str, str]:
    """The execution and the request of changes that wait for an approval."""
    found = project.shell(script).json
    assert found["workspace"]["state"] == "held"
    return found["execution_id"], found["workspace"]["request_id"]


def _decide(project: Terminal, word: str, request: str) -> Answer:
    return project.json("approvals", word, request, "--by", "boss", "--why", "looked at")


def test_an_approver_sees_kind_mode_target_and_every_byte_or_its_digest(fresh: Terminal) -> None:
    root = fresh.folder
    (root / "rules").mkdir(exist_ok=True)
    (root / "rules/open").write_text("one\ntwo\n")
    (root / "rules/program").write_bytes(b"\xff")
    _, request = _held(
        fresh,
        "cd rules; printf 'one\\r\\ntwo' > open; chmod 755 open; printf 'a\\vb\\n' > odd;"
        " printf '\\001\\377' > binary; ln -s /etc/passwd link; mkdir folder;"
        " echo script > program;"
        " touch 'name (mode 644): innocent'",
    )
    lines = fresh.actum("approvals", "show", request).text.splitlines()
    assert f"decides what is executed later: {root}/rules/open" in lines
    at = lines.index(f"modified file (mode 644) -> file (mode 755): {root}/rules/open")
    assert lines[at + 4 : at + 8] == [
        "  -one",
        r"  +one\r",
        "   two",
        r"  +\ No newline at end of file",
    ]
    assert r"  +a\x0bb" in lines
    digest = blake3(b"\x01\xff").hexdigest()
    at = lines.index(f"created file (mode 644): {root}/rules/binary")
    assert lines[at + 1] == f"  (after: 2 bytes, not text, BLAKE3 {digest})"
    at = lines.index(f"modified file (mode 644): {root}/rules/program")
    assert lines[at + 1].startswith("  (before: 1 bytes, not text, BLAKE3 ")
    assert lines[at + 5] == "  +script"
    at = lines.index(f"created link: {root}/rules/link")
    assert lines[at + 1] == "  (after: a link to /etc/passwd)"
    assert f"created folder (mode 755): {root}/rules/folder" in lines
    assert f"created file (mode 644): {root}/rules/name (mode 644): innocent" in lines
    document = fresh.json("approvals", "show", request).json
    assert f"{root}/rules/open" in document["held"]
    assert "  +one\r" in document["diff"]


def test_changes_that_are_not_those_of_the_request_are_neither_shown_nor_approved(
    fresh: Terminal,
) -> None:
    execution, request = _held(fresh, "mkdir -p rules; echo good > rules/a")
    record = fresh.folder / ".actum/transactions" / f"{execution}-1/record.json"
    honest = record.read_bytes()
    record.write_bytes(honest.replace(b"rules/a", b"notes/a"))
    shown = fresh.actum("approvals", "show", request).text.splitlines()
    assert shown[-1] == "changes: lost or changed."
    assert not any("notes/a" in line for line in shown)
    refused = _decide(fresh, "approve", request)
    assert refused.code == 3
    assert refused.json["error"]["code"] == "CHANGES_DIFFER"
    # No decision is on record that would count once the honest list is put back.
    record.write_bytes(honest)
    assert fresh.json("approvals", "show", request).json["state"] == "pending"
    assert fresh.actum("diff", execution, "--commit").code == 3
    assert not (fresh.folder / "rules/a").exists()
    assert _decide(fresh, "approve", request).code == 0
    assert (fresh.folder / "rules/a").read_text() == "good\n"


def test_approved_changes_that_others_have_overtaken_are_no_success(fresh: Terminal) -> None:
    (fresh.folder / "rules").mkdir(exist_ok=True)
    (fresh.folder / "rules/a").write_text("first\n")
    _, request = _held(fresh, "echo tool > rules/a")
    (fresh.folder / "rules/a").write_text("by hand\n")
    answer = _decide(fresh, "approve", request)
    assert answer.code == 3
    assert answer.json["approvals"][0]["changes_state"] == "conflict"
    assert (fresh.folder / "rules/a").read_text() == "by hand\n"


def test_who_approved_changes_is_visible_in_list_and_verify(fresh: Terminal) -> None:
    execution, request = _held(fresh, "mkdir -p rules; echo x > rules/a")
    assert "asked and" not in fresh.actum("verify", execution).text
    assert _decide(fresh, "approve", request).json["approvals"][0]["changes_state"] == "committed"
    assert "same user asked" in fresh.actum("approvals", "list", "--all").text
    said = "AG-06 approved by boss (user "
    for words in (("verify", execution), ("verify", "--all")):
        told = fresh.actum(*words)
        assert told.code == 0
        (line,) = (line for line in told.text.splitlines() if said in line)
        assert line.endswith("; the same user asked and approved)")
