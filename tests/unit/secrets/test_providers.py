"""Each source of a secret: gives it, or says why not, without ever saying what it is."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import pytest

from actum.contract.call import SecretUse
from actum.errors import ContractInvalid, Refused
from actum.secrets import providers
from actum.secrets.given import Secrets
from actum.secrets.sources import (
    FromCommand,
    FromEnvironment,
    FromFile,
    FromKeyring,
    Unavailable,
    problem_with,
    source_of,
)
from actum.settings import load

VALUE = b"v3ry/secret+value"


def test_the_environment_is_the_operators() -> None:
    found = providers.fetch(FromEnvironment("T"), {"T": VALUE.decode()}, "/p")
    assert found == VALUE
    with pytest.raises(Unavailable, match="variable U is not set"):
        providers.fetch(FromEnvironment("U"), {"T": "x"}, "/p")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_bytes(VALUE + b"\n")
    path.chmod(0o600)
    return path


def test_a_file_is_read_without_its_line_end(file: Path) -> None:
    assert providers.fetch(FromFile(str(file)), {}, "/p") == VALUE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_touch_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(Unavailable, match="chmod 600"):
        providers.fetch(FromFile(str(file)), {}, "/p")


def test_a_file_that_tools_can_read_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="is in the project"):
        providers.fetch(FromFile(str(file)), {}, str(tmp_path))
    # Nor through a link from elsewhere.
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(file)
    with pytest.raises(Unavailable, match="is in the project"):
        providers.fetch(FromFile(str(link)), {}, str(tmp_path))
    hidden = tmp_path / ".actum" / "token"
    hidden.parent.mkdir()
    file.rename(hidden)
    assert providers.fetch(FromFile(str(hidden)), {}, str(tmp_path)) == VALUE


def test_a_pipe_or_a_folder_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("pipe", "."):
        with pytest.raises(Unavailable, match="not a regular file"):
            providers.fetch(FromFile(str(tmp_path / name)), {}, "/p")


def test_a_command_is_asked_with_the_operators_environment() -> None:
    source = FromCommand(("/bin/sh", "-c", 'echo "$STORED"; echo noise >&2'))
    assert providers.fetch(source, {"STORED": VALUE.decode()}, "/p") == VALUE


def test_a_command_that_fails_is_no_secret_and_its_words_are_not_repeated() -> None:
    source = FromCommand(("/bin/sh", "-c", f"echo {VALUE.decode()}; exit 3"))
    with pytest.raises(Unavailable, match="ended with 3") as caught:
        providers.fetch(source, {}, "/p")
    assert VALUE.decode() not in str(caught.value)


def test_a_command_that_says_too_much_is_ended() -> None:
    with pytest.raises(Unavailable, match="more than"):
        providers.fetch(FromCommand(("/usr/bin/yes",)), {}, "/p")


def test_a_command_that_does_not_answer_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_COMMAND_S", 0.5)
    file = tmp_path / "pid"
    source = FromCommand(("/bin/sh", "-c", f"sleep 600 & echo $! > {file}; wait"))
    with pytest.raises(Unavailable, match="did not answer"):
        providers.fetch(source, {}, "/p")
    stat = Path(f"/proc/{int(file.read_text())}/stat")
    until = time.monotonic() + 10  # the kernel may take a moment to bury it
    while stat.exists() and stat.read_text().split()[2] != "Z" and time.monotonic() < until:
        time.sleep(0.01)
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_to_look_starts_no_command(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    providers.require_usable(FromCommand(("/bin/sh", "-c", f"touch {mark}")), {}, "/p")
    assert not mark.exists()
    with pytest.raises(Unavailable, match="not a program"):
        providers.require_usable(FromCommand(("/nowhere/pass",)), {}, "/p")


def test_a_key_of_the_kernel() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    name = f"actum-test-{os.getpid()}"
    key = libc.syscall(248, b"user", name.encode(), VALUE, len(VALUE), -3)
    if key < 0:
        pytest.skip(f"add_key: {os.strerror(ctypes.get_errno())}")
    try:
        assert providers.fetch(FromKeyring(name), {}, "/p") == VALUE
    finally:
        assert libc.syscall(250, 3, key) == 0  # KEYCTL_REVOKE
    with pytest.raises(Unavailable, match="kernel key"):
        providers.fetch(FromKeyring(name), {}, "/p")


@pytest.mark.parametrize("value", ["", "abc", "x" * (providers.MOST_BYTES + 1)])
def test_a_value_that_cannot_be_recognised_is_refused(value: str) -> None:
    with pytest.raises(Unavailable, match="bytes long"):
        providers.fetch(FromEnvironment("T"), {"T": value}, "/p")


def test_every_missing_one_is_named_at_once() -> None:
    secrets = Secrets({"A": FromEnvironment("X"), "B": FromFile("/nowhere")}, environment={})
    uses = [SecretUse(name=name, variable=name) for name in "ABC"]
    for ask in (secrets.require, secrets.give):
        with pytest.raises(Refused) as caught:
            ask(uses)
        fields = [violation.field for violation in caught.value.violations]
        assert fields == ["inputs.secrets.A", "inputs.secrets.B", "inputs.secrets.C"]


def test_a_zero_byte_travels_by_descriptor_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"ab\0cd")
    path.chmod(0o600)
    secrets = Secrets({"A": FromFile(str(path))}, environment={})
    with pytest.raises(Refused, match="NUL"):
        secrets.give([SecretUse(name="A", variable="A")])
    given = secrets.give([SecretUse(name="A", variable="F", by_descriptor=True)])
    assert given.descriptors == (b"ab\0cd",)
    assert "cd" not in repr(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("0A", {"env": "X"}),
        ("A", "plain"),
        ("A", {"env": "X", "file": "/y"}),
        ("A", {"vault": "X"}),
        ("A", {"env": 5}),
        ("A", {"file": "token"}),
        ("A", {"command": "pass show x"}),
        ("A", {"command": ["./pass", "show"]}),
        ("A", {"command": ["bin/pass", "show"]}),
        ("A", {"command": [""]}),
    ],
)
def test_a_source_that_cannot_be_meant_is_an_error(name: str, value: object) -> None:
    assert problem_with(name, value)


def test_sources_are_read_from_the_settings(tmp_path: Path) -> None:
    for value, meant in (
        ({"env": "X"}, FromEnvironment("X")),
        ({"file": "~/t"}, FromFile("/h/t")),
        ({"file": ".actum/t"}, FromFile("/p/.actum/t")),
        ({"command": ["/bin/pass", "x"]}, FromCommand(("/bin/pass", "x"))),
        ({"command": ["pass", "x"]}, FromCommand(("pass", "x"))),
        ({"keyring": "k"}, FromKeyring("k")),
    ):
        assert problem_with("A", value) == ""
        assert source_of(value, project="/p", user_home="/h") == meant
    (tmp_path / "actum.toml").write_text('[secrets]\nA = { env = "X" }\nB = "no"\n')
    with pytest.raises(ContractInvalid, match=r"secrets\.B"):
        load(tmp_path / ".actum", {})
