"""What a person at a terminal sees of an execution's changes, decides about them, and undoes."""

from __future__ import annotations

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
