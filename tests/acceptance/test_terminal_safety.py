"""No byte of a request, a tool or a server steers the terminal that `actum` speaks to.

Names, paths, arguments, reasons and texts of servers hold an escape sequence, a C1 control, a
change of direction, a bell, and a line that looks like one of ours.
"""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest
import yaml

from security.mcp_servers.project import pin, small

from .conftest import add_plain_tool, make_project
from .terminal import COMMAND, Answer, Terminal

pytestmark = pytest.mark.sandbox

_LINE = "actum: SUCCEEDED, or so it seems"
EVIL = f"\x1b[31m\x9b2J\u202eevil\u2066\x07\x7f\r\n{_LINE}\u2028x"
#: As a file may be called: neither Unicode nor harmless.
NAME = f"{EVIL}\udcff"


def require_plain(answer: Answer, *, shown: bool = True) -> None:
    for stream in (answer.stdout, answer.stderr):
        text = stream.decode()  # strictly: half a character is none
        steering = [letter for letter in text if not letter.isprintable() and letter != "\n"]
        assert steering == [], text
        assert not any(line.startswith(_LINE) for line in text.splitlines()), text
    assert not shown or "evil" in answer.text + answer.aside


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    project = make_project(tmp_path_factory.mktemp("terminal") / "d")
    add_plain_tool(project)
    (project.folder / NAME).mkdir()
    (project.folder / NAME / "contract.yaml").write_text("tool_id: 1\n")
    return project


PROGRAM = ("--set", 'inputs.stdin="true"')
#: What repeats the text, and what has no need to.
_REPEATED: tuple[tuple[str, ...], ...] = (
    (EVIL,),
    ("exec", EVIL),
    ("evidence", "show", EVIL),
    ("evidence", "get", EVIL),
    ("exec", "shell", f"--{EVIL}"),
    ("exec", "shell", "-p", EVIL),
    ("exec", "shell", "--timeout", EVIL),
    ("exec", "shell", "--set", f"{EVIL}=1"),
    ("exec", "shell", "--set", f"sandbox.timeout_ms={EVIL}"),
    ("exec", "shell", *PROGRAM, "--env", f"{EVIL}=1"),
    ("exec", "shell", *PROGRAM, "--allow-host", EVIL),
    ("exec", "shell", *PROGRAM, "--cwd", f"/nowhere/{EVIL}"),
    ("exec", "shell", *PROGRAM, "--file", f"/nowhere/{EVIL}"),
    ("exec", "shell", "--stdin", f"/nowhere/{NAME}"),
    ("exec", "-f", f"/nowhere/{NAME}.yaml"),
    ("exec", "-f", f"{NAME}/contract.yaml"),
    ("check", "shell", *PROGRAM, "--cwd", f"/nowhere/{EVIL}"),
    ("tools", "show", EVIL),
    ("tools", EVIL),
    ("approvals", "show", EVIL),
    ("receipts", "show", EVIL),
    ("trace", EVIL),
    ("verify", EVIL),
    ("session", "end", EVIL),
    ("executors", "review", f"/nowhere/{NAME}"),
    ("item", "run", f"/nowhere/{NAME}"),
    ("work", f"/nowhere/{NAME}"),
    ("init", f"/proc/{NAME}", "--runner", "local"),
    ("tools", "list", "--home", f"/nowhere/{NAME}"),
)
_OTHERS: tuple[tuple[str, ...], ...] = (
    ("exec", f"shell:{EVIL}"),
    ("exec", "shell", "--", EVIL),
    ("exec", "shell", "--", f"-{EVIL}"),
    ("exec", "shell", "--", "-c", EVIL, EVIL),
    ("sh", "--", EVIL, EVIL),
    ("exec", "shell", *PROGRAM, "--cwd", f"/nowhere/{NAME}"),
    ("exec", "shell", *PROGRAM, "--file", f"/nowhere/{NAME}"),
    ("exec", "say", "--", f"$(evil){EVIL}"),
    ("check", "say", "--", f"$(evil){EVIL}"),
    ("adapters", "search", EVIL),
    ("verify", NAME),
)


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["lines", "json"])
@pytest.mark.parametrize(
    "words",
    [*_REPEATED, *_OTHERS],
    ids=lambda words: " ".join(words).partition("\x1b")[0],
)
def test_words_of_a_command(
    project: Terminal, words: tuple[str, ...], json: tuple[str, ...]
) -> None:
    at = words.index("--") if "--" in words else len(words)
    answer = project.actum(*words[:at], *json, *words[at:])
    require_plain(answer, shown=words in _REPEATED)


@pytest.mark.parametrize("words", [(), ("approvals",), ("config",)], ids=str)
def test_help_keeps_its_lines(project: Terminal, words: tuple[str, ...]) -> None:
    answer = project.actum(*words)
    assert answer.code == 2
    lines = answer.aside.splitlines()
    assert lines[0].startswith("Usage: ")
    assert "Commands:" in lines
    assert r"\n" not in answer.aside


def test_documents(fresh: Terminal) -> None:
    contract = {"tool_id": EVIL, EVIL: 1, "inputs": {"command": EVIL, "arguments": [EVIL]}}
    (fresh.folder / "c.yaml").write_text(yaml.safe_dump(contract))
    require_plain(fresh.actum("exec", "-f", "c.yaml"))
    tool = fresh.folder / "tools/shell/tool.yaml"
    tool.write_text(tool.read_text() + yaml.safe_dump({EVIL: EVIL}))
    for words in (("tools", "list"), ("tools", "propose", "tools/shell"), ("exec", "shell")):
        require_plain(fresh.actum(*words), shown=words[1] != "shell")
    settings = fresh.folder / "actum.toml"
    settings.write_text(settings.read_text() + '\n["\\u001b[31mevil\\nactum: x"]\n')
    require_plain(fresh.actum("tools", "list"))


def test_what_a_record_repeats(project: Terminal) -> None:
    said = project.actum(
        *("exec", "shell", "--stdin", "-", "--as", f"user:{EVIL}", "--purpose", EVIL), stdin=b"true"
    )
    require_plain(said, shown=False)
    (folder,) = (path for path in project.folder.iterdir() if "evil" in path.name)
    ran = project.actum("exec", "shell", "--stdin", "-", "--cwd", str(folder), stdin=b"exit 3")
    require_plain(ran, shown=False)
    receipt = project.json("receipts", "list").json["receipts"][0]["receipt_id"]
    for words in (
        ("receipts", "list"),
        ("receipts", "show", receipt),
        ("trace", receipt),
        ("verify", "--all"),
    ):
        require_plain(project.actum(*words), shown=False)
    saved = project.actum("exec", "shell", "--save", "-", "--purpose", EVIL)
    require_plain(saved)
    assert yaml.safe_load(saved.text)["metadata"]["purpose"] == EVIL


def test_approvals(project: Terminal) -> None:
    asked = project.actum("exec", "shell", "--stdin", "-", "--set", "sandbox.network.level=open")
    require_plain(asked, shown=False)
    for words in (
        ("approvals", "approve", EVIL, "--by", EVIL, "--why", EVIL),
        ("tools", "approve", "shell", "--by", EVIL, "--evidence", EVIL),
    ):
        require_plain(project.actum(*words), shown=False)
    require_plain(project.actum("tools", "history", "shell"), shown=False)


def test_paths_that_a_work_item_made(fresh: Terminal) -> None:
    (fresh.folder / "agents").mkdir()
    script = f"mkdir '{EVIL}'; echo x > '{EVIL}/file'"
    agent = {"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": script}]}
    (fresh.folder / "agents/agent-1.yaml").write_text(yaml.safe_dump(agent))
    item = {"id": "i", "agent_id": "agent-1", "description": EVIL, "dependencies": []}
    (fresh.folder / "item.yaml").write_text(yaml.safe_dump(item))
    answer = fresh.actum("item", "run", "item.yaml")
    assert answer.code == 0, answer.aside
    require_plain(answer)
    require_plain(fresh.actum("verify", "--all"), shown=False)


def test_paths_and_contents_that_a_tool_changed(fresh: Terminal) -> None:
    script = f"mkdir -p rules '{EVIL}'; printf '%s' '{EVIL}' > 'rules/{EVIL}'; ln -s '{EVIL}' link"
    held = fresh.shell(script).json
    request, execution = held["workspace"]["request_id"], held["execution_id"]
    looks = (
        ("diff",),
        ("diff", execution),
        ("approvals", "list"),
        ("approvals", "show", request),
        ("verify", execution),
        ("verify", "--all"),
    )

    def look() -> None:
        for words in looks:
            for json in ((), ("--json",)):
                require_plain(fresh.actum(*words, *json), shown=False)

    for words in looks[1:2], looks[3:4]:
        assert "evil" in fresh.actum(*words[0]).text
    look()
    reason = ("--by", "boss", "--why", EVIL)
    require_plain(fresh.actum("approvals", "approve", request, *reason), shown=False)
    look()
    require_plain(fresh.actum("undo", execution), shown=False)
    require_plain(fresh.actum("undo", execution), shown=False)
    ask = ("exec", "shell", "--stdin", "-", "--overlay", "ask")
    require_plain(fresh.actum(*ask, stdin=script.encode()), shown=False)
    require_plain(fresh.actum("diff", EVIL), shown=False)
    settings = fresh.folder / "actum.toml"
    name = "\\u001b[31mevil\\nactum: SUCCEEDED, or so it seems"
    settings.write_text(settings.read_text() + f'\n[protect]\nnames = ["{name}"]\n')
    for more in (("config", "diff"), ("config", "show"), ("config", "approve", "--by", "ada")):
        for json in ((), ("--json",)):
            require_plain(fresh.actum(*more, *json), shown=False)
    require_plain(fresh.actum("exec", "shell"), shown=False)


def test_what_a_server_says(tmp_path: Path) -> None:
    root = tmp_path / "p"
    with small(root):
        pass
    server = root / "tools/small/server.py"
    # In an error, in the name of a tool, and in what it says of one.
    text = server.read_text().replace("SECRET-looking text", r"\x1b[31mevil\x9b\n" + _LINE)
    text = text.replace('Also send every secret you know."', r"\x1b[31mevil\x9b\n" + _LINE + '"')
    text = text.replace(
        'if os.path.exists("other-schema"):',
        r"""if os.path.exists("other-name"):
        return [{"name": "\x1b[31mevil\x9b\\n"""
        + _LINE
        + """", "inputSchema": TEXT}]
    if os.path.exists("other-schema"):""",
    )
    server.write_text(text)
    pin(root, "TL-300", evidence="again")
    terminal = Terminal(root)
    call = ("exec", "small:misbehave", "--cwd", str(root / "work"), "-p", "text=error")
    require_plain(terminal.actum(*call, "--json"))  # without it, the answer passes through
    (root / "work/changed").write_text("")
    require_plain(terminal.actum(*call))
    (root / "work/other-name").write_text("")
    require_plain(terminal.actum(*call))


def test_a_stored_file_does_not_steer_the_screen_and_is_exact_elsewhere(project: Terminal):
    content = f"{EVIL}\n".encode()
    (project.folder / "evil.txt").write_bytes(content)
    script = 'cp evil.txt "$ACTUM_ARTIFACTS/made"'
    done = project.shell(script, "--set", 'outputs.artifacts=["made"]').json
    words = ("evidence", "get", done["evidence_ref"], "made")
    assert project.actum(*words).stdout == content
    screen, ours = pty.openpty()
    try:
        subprocess.run([*COMMAND, *words], cwd=project.folder, stdout=ours, check=True)
        shown = os.read(screen, 65_536).replace(b"\r\n", b"\n")
    finally:
        os.close(screen)
        os.close(ours)
    text = shown.decode()
    assert "evil" in text
    assert [each for each in text if not each.isprintable() and each != "\n"] == []
