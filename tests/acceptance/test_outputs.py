"""What a tool says and leaves behind reaches the caller exactly, or visibly not at all."""

from __future__ import annotations

import base64
import hashlib
import os
import pty
import shutil
import subprocess
import uuid

import pytest

from .conftest import add_program
from .terminal import COMMAND, Answer, Terminal, alive, eventually, unique_nap

pytestmark = pytest.mark.sandbox


def test_output_passes_through_byte_for_byte_with_one_line_of_summary(project: Terminal):
    script = rb"printf 'out\377\000'; printf 'err\376' >&2"
    answer = project.actum("exec", "shell", "--stdin", "-", stdin=script)
    assert answer.code == 0
    assert answer.stdout == b"out\xff\0"
    said, summary = answer.stderr.split(b"actum: ")
    assert said == b"err\xfe"
    assert summary.startswith(b"SUCCEEDED")
    assert summary.count(b"\n") == 1


def test_output_that_is_not_utf8_is_exact_in_base64(project: Terminal):
    answer = project.shell(rb"printf '\377\000x'").json
    assert answer["streams"]["stdout"]["encoding"] == "base64"
    assert base64.b64decode(answer["result"]["stdout"]) == b"\xff\0x"
    assert answer["streams"]["stdout"]["sha256"] == hashlib.sha256(b"\xff\0x").hexdigest()


@pytest.mark.req("000-73", "000-74", "000-78")
def test_too_much_output_is_drained_counted_and_cut(project: Terminal):
    answer = project.shell("head -c 3000000 /dev/zero; head -c 500000 /dev/zero >&2; echo end >&2")
    streams = answer.json["streams"]
    assert answer.json["outcome"] == "SUCCEEDED"
    assert streams["stdout"] | {"sha256": ""} == {
        "bytes": 3_000_000,
        "kept": 1_048_576,
        "truncated": True,
        "sha256": "",
        "encoding": "utf-8",
    }
    assert streams["stdout"]["sha256"] == hashlib.sha256(bytes(3_000_000)).hexdigest()
    assert (streams["stderr"]["bytes"], streams["stderr"]["kept"]) == (500_004, 262_144)
    assert len(answer.json["result"]["stdout"]) == 1_048_576


@pytest.mark.req("000-24")
def test_another_exit_code_than_the_declared_one_is_invalid_output(project: Terminal):
    declared = ("--set", "outputs.exit_code=3")
    assert project.shell("exit 3", *declared).code == 0
    answer = project.shell("exit 0", *declared)
    assert (answer.code, answer.json["outcome"]) == (1, "OUTPUT_INVALID")
    assert answer.violations == [("OUTPUT_INVALID", "outputs.exit_code")]
    # Zero is a code like any other. Without it, an exit with 3 is the tool's error alone.
    reasons = {
        words: project.shell("exit 3", *words).json["result"]["error_reason"]
        for words in ((), ("--set", "outputs.exit_code=0"))
    }
    told = ["outputs.exit_code: expected 0, got 3" in reason for reason in reasons.values()]
    assert told == [False, True], reasons


@pytest.mark.req("000-25")
def test_declared_files_are_collected_and_a_missing_one_is_reported(project: Terminal):
    declared = ("--set", 'outputs.output_files=["made.txt"]')
    kept = project.shell("echo content > made.txt", *declared).json["result"]["artifacts"]
    assert [(each["path"], each["size"]) for each in kept] == [("made.txt", 8)]
    answer = project.shell("rm made.txt", *declared)
    assert (answer.code, answer.json["outcome"]) == (1, "OUTPUT_INVALID")
    assert answer.violations == [("OUTPUT_INVALID", "outputs.output_files")]


@pytest.mark.req("000-26")
def test_an_artifact_comes_back_as_a_record(project: Terminal):
    spec = '[{"name": "report", "path": "r.json", "type": "json"}]'
    answer = project.shell(
        'echo {} > "$ACTUM_ARTIFACTS/r.json"', "--set", f"outputs.artifacts={spec}"
    )
    (record,) = answer.json["result"]["artifacts"]
    assert (record["path"], record["size"]) == ("r.json", 3)
    assert (record["name"], record["type"], record["kind"]) == ("report", "json", "artifact")
    assert record["sha256"] == hashlib.sha256(b"{}\n").hexdigest()
    assert record["trace_id"] == answer.json["trace_id"]
    shown = project.json("evidence", "show", answer.json["evidence_ref"]).json
    (kept,) = shown["evidence"][0]["files"]
    assert (kept["name"], kept["type"], kept["path"]) == ("report", "json", "r.json")
    signed = project.json("receipts", "show", answer.json["receipt_id"]).json["statement"]
    (bound,) = signed["predicate"]["artifacts"]
    assert (bound["name"], bound["type"], bound["sha256"]) == ("report", "json", record["sha256"])


@pytest.mark.req("000-26")
def test_a_file_that_is_not_declared_is_called_by_its_path(project: Terminal):
    spec = '[{"name": "report", "path": "./in/r.json", "type": "json"}, "plain"]'
    script = 'cd "$ACTUM_ARTIFACTS"; mkdir in; echo 1 > in/r.json; echo 2 > plain; echo 3 > in/more'
    answer = project.shell(script, "--set", f"outputs.artifacts={spec}")
    found = [
        (each["name"], each["path"], each["type"]) for each in answer.json["result"]["artifacts"]
    ]
    assert found == [
        ("more", "in/more", "file"),
        ("report", "in/r.json", "json"),
        ("plain", "plain", "file"),
    ]


@pytest.mark.req("000-76", "000-79")
def test_files_over_the_total_fail_visibly_by_name_and_size(project: Terminal):
    script = "head -c 6000000 /dev/zero > one; head -c 6000000 /dev/zero > two"
    answer = project.shell(script, "--set", 'outputs.output_files=["one", "two"]')
    assert (answer.code, answer.json["outcome"]) == (1, "OUTPUT_INVALID")
    assert "two (6000000 bytes)" in answer.json["violations"][0]["message"]


def test_files_written_in_the_working_directory_belong_to_the_caller(project: Terminal):
    answer = project.shell("id -u; echo mine > owned.txt; mkdir owned; ln -s owned.txt owned-link")
    assert answer.code == 0
    for name in ("owned.txt", "owned", "owned-link"):
        found = os.stat(project.folder / name, follow_symlinks=False)
        assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())


@pytest.mark.req("000-10")
def test_every_byte_value_reaches_stdin_and_then_it_ends(fresh: Terminal):
    add_program(fresh, "echo-bytes", "cat")
    given = bytes(range(256)) * 1_000 + b"\x04\r\n\x00"  # more than a pipe holds
    answer = fresh.json("exec", "echo-bytes", "--stdin", "-", stdin=given).json
    assert answer["outcome"] == "SUCCEEDED"
    assert base64.b64decode(answer["result"]["stdout"]) == given
    assert answer["streams"]["stdout"]["sha256"] == hashlib.sha256(given).hexdigest()


@pytest.mark.req("000-10")
def test_stdin_is_what_was_given_and_never_our_own(project: Terminal):
    (project.folder / "program.py").write_bytes(b"import sys; print(sys.stdin.read())")
    given = project.json("exec", "python", "--stdin", "program.py", stdin=b"not for the tool")
    assert given.json["result"]["stdout"] == "\n"
    none = project.json("exec", "shell", "--", "-c", "cat", stdin=b"not for the tool\n")
    assert none.json["outcome"] == "SUCCEEDED"
    assert "not for the tool" not in none.json["result"]["stdout"]


@pytest.mark.req("000-2")
def test_the_same_id_again_is_answered_from_the_record(project: Terminal):
    contract = """
        execution_id: 0e3d9b54-6f0c-4f6e-9d31-7f3f1d7c0c11
        tool_id: TL-010
        inputs: {command: sh, stdin: "echo ran >> ran.txt"}
    """
    first, second = project.contract(contract), project.contract(contract)
    assert (first.json["replayed"], second.json["replayed"]) == (False, True)
    assert second.json["receipt_id"] == first.json["receipt_id"]
    other = project.contract(contract.replace("ran.txt", "other.txt"))
    assert (other.code, other.violations) == (3, [("EXECUTION_ID_REUSED", "")])
    assert (project.folder / "ran.txt").read_text() == "ran\n"
    assert not (project.folder / "other.txt").exists()


@pytest.mark.req("000-73", "000-74", "000-75", "000-80")
def test_raw_output_lives_as_long_as_its_session_and_collected_files_longer(fresh: Terminal):
    def asked(name: str, *session: str) -> Answer:
        (fresh.folder / "c.yaml").write_text(
            f"""
            execution_id: {uuid.uuid5(uuid.NAMESPACE_OID, name)}
            tool_id: TL-010
            inputs: {{command: sh, stdin: "echo said; echo also >&2; echo kept > f; exit 3"}}
            outputs: {{output_files: [f]}}
            """
        )
        return fresh.json("exec", "-f", "c.yaml", *session)

    for words, remembered in ((("--session", "long"), ("said\n", "also\n")), ((), ("", ""))):
        first, again = asked(str(words), *words).json, asked(str(words), *words).json
        assert (first["result"]["stdout"], first["result"]["stderr"]) == ("said\n", "also\n")
        assert again["replayed"]
        assert (again["result"]["stdout"], again["result"]["stderr"]) == remembered
        assert again["result"]["exit_code"] == 3
        assert again["result"]["artifacts"] == first["result"]["artifacts"] != []
        checked = fresh.json("verify", first["receipt_id"]).json["findings"]
        assert "file output_file/f" in [each["subject"] for each in checked if each["passed"]]


@pytest.mark.req("000-78")
def test_a_reader_that_waits_holds_up_neither_the_tool_nor_its_deadline(project: Terminal):
    nap = unique_nap()
    running = project.start("exec", "shell", "--stdin", "-", "--timeout", "2s")
    assert running.stdin
    running.stdin.write(f"head -c 3000000 /dev/zero; sleep {nap}".encode())
    running.stdin.close()
    running.stdin = None
    eventually(lambda: bool(alive(nap)), "the tool gets past its output, which nobody has read")
    eventually(lambda: not alive(nap), "it is stopped at its deadline")
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 4
    assert stdout == bytes(3_000_000)
    assert b"TIMED_OUT" in stderr


def test_a_reader_that_leaves_ends_the_tool(project: Terminal):
    running = project.start("exec", "shell", "--stdin", "-")
    assert running.stdin
    assert running.stdout
    running.stdin.write(b"yes")
    running.stdin.close()
    assert running.stdout.readline() == b"y\n"
    running.stdout.close()
    assert running.wait(timeout=60) == 130
    assert running.stderr
    assert b"CANCELLED" in running.stderr.read()
    running.stderr.close()


@pytest.mark.req("000-128", "000-129", "000-130", "000-134", "000-136")
@pytest.mark.req("000-119", "000-120", "000-137")
def test_ripgrep_takes_a_regex_and_gives_a_list(project: Terminal):
    (project.folder / "poem").mkdir()
    (project.folder / "poem/one.txt").write_text("Rose; (red)\nnothing\nrose & (blue)\n")
    search = ("exec", "ripgrep", "-p", r"pattern=^rose [;&] \((red|blue)\)$", "-p", "path=poem")
    answer = project.json(*search)
    assert answer.json["adapter_id"] == "ADP-001"
    matches = [each for each in answer.json["output"] if each["type"] == "match"]
    assert [each["data"]["lines"]["text"] for each in matches] == ["rose & (blue)\n"]
    rows = {row["limit"]: row for row in answer.json["enforcement"]}
    limits = [rows[name] for name in ("timeout_ms", "memory_mb", "network")]
    assert [row["requested"] for row in limits] == ["60000", "256", "none"]
    assert all(row["enforced"] and row["mechanism"] for row in limits)


@pytest.mark.req("000-120", "000-137")
def test_a_search_that_needs_more_than_256_mb_is_killed(project: Terminal):
    folder = project.folder / "lines"
    folder.mkdir()
    for number in range(20):  # ripgrep maps the files of a short list, and reads those of a folder
        (folder / str(number)).write_text("c\n")
    file = folder / "line.txt"
    search = ("exec", "ripgrep", "-p", "pattern=b", "-p", "path=lines")
    outcomes = []
    for size in (8 << 20, 150 << 20):
        file.write_bytes(b"a" * size + b"b\n")
        answer = project.json(*search).json
        (memory,) = (row for row in answer["enforcement"] if row["limit"] == "memory_mb")
        outcomes.append((answer["outcome"], memory["tripped"]))
    shutil.rmtree(folder)
    # The first is the control: its line is more than stdout may have.
    assert outcomes == [("OUTPUT_INVALID", False), ("RESOURCE_KILLED", True)]


def test_a_search_without_a_path_is_refused(project: Terminal):
    """rg would search stdin, which is empty, and find nothing."""
    refused = project.json("exec", "ripgrep", "-p", "pattern=rose")
    assert (refused.code, refused.violations) == (3, [("ARGS_INVALID", "inputs.parameters")])
    (project.folder / "rose.txt").write_text("rose\n")
    assert project.json("exec", "ripgrep", "-p", "pattern=rose", "-p", "path=rose.txt").code == 0


def test_the_tool_of_the_library_says_which_tool_runs_programs(project: Terminal):
    answer = project.json("exec", "snippet", "--stdin", "-", stdin=b"print(1)\n")
    assert (answer.code, answer.json["outcome"]) == (1, "TOOL_ERROR")
    assert "actum exec python" in answer.json["result"]["stderr"]
    assert "Traceback" not in answer.json["result"]["stderr"]


@pytest.mark.req("000-135")
def test_a_search_that_fails_is_not_tried_again(project: Terminal):
    answer = project.json("exec", "ripgrep", "-p", "pattern=(", "-p", "path=.")
    assert (answer.code, answer.json["outcome"]) == (1, "TOOL_ERROR")
    assert (answer.json["attempts"], answer.json["adapter_id"]) == (1, "ADP-001")


@pytest.mark.req("000-131", "000-132")
def test_ripgrep_options_follow_their_parameters(project: Terminal):
    folder = project.folder / "options"
    folder.mkdir()
    (folder / "a.txt").write_text("Rose\nrose\nROSE\n")
    search = ("exec", "ripgrep", "-p", "pattern=rose", "-p", "path=options")

    def found(*more: str) -> list[int]:
        output = project.json(*search, *more).json["output"]
        return [each["data"]["line_number"] for each in output if each["type"] == "match"]

    assert found() == [2]
    assert found("-p", "ignore_case=false") == [2]
    assert found("-p", "ignore_case=true") == [1, 2, 3]
    assert found("-p", "ignore_case=true", "-p", "max_count=2") == [1, 2]


def test_the_json_document_has_the_promised_keys(project: Terminal):
    promised = {
        *("execution_id", "trace_id", "session", "tool_id", "adapter_id", "runner_type"),
        *("attempts", "replayed", "outcome", "reason_codes", "violations", "result", "output"),
        *("streams", "enforcement", "denials", "receipt_id", "receipt_path"),
    }
    ran, refused = project.shell("true").json, project.json("exec", "nosuch").json
    assert promised <= set(ran)
    assert set(ran) == set(refused)
    assert set(ran["result"]) == {
        *("status", "exit_code", "stdout", "stderr", "artifacts", "duration_ms", "error_reason"),
    }
    assert refused["result"] is None


@pytest.mark.parametrize(("said", "shown"), [("a", b"a\r\nactum: "), ("a\\n", b"a\r\nactum: ")])
def test_on_a_screen_what_we_say_begins_on_a_line_of_its_own(
    fresh: Terminal, said: str, shown: bytes
) -> None:
    (fresh.folder / "script").write_text(f"printf '{said}'")
    screen, ours = pty.openpty()
    try:
        command = [*COMMAND, "exec", "shell", "--stdin", "script"]
        subprocess.run(command, cwd=fresh.folder, stdout=ours, stderr=ours, check=True)
        assert os.read(screen, 65_536).startswith(shown)
    finally:
        os.close(screen)
        os.close(ours)
