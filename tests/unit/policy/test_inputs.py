from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.adapters.cli import build_call
from actum.contract.call import CheckResult, EffectivePolicy, NetworkPolicy
from actum.contract.limits import INPUT_FILES_BYTES, STDIN_BYTES, Limits
from actum.contract.model import (
    ExpectedOutputs,
    FilesystemLevel,
    FilesystemRequest,
    RunnerKind,
    SandboxRequest,
)
from actum.errors import Violation
from actum.policy.environment import approved_names
from actum.policy.inputs import SHELL_CHARACTERS, Checked, check_inputs
from actum.registry.model import Entry

from .factories import make_cli, make_contract, make_entry, make_scope

SEED_CHARACTERS = list(";|&$`(){}[]<>\\\"'!#*?")


@dataclass(frozen=True)
class Project:
    """A repository with a working directory in it, and something outside of both."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "repo" / "work"

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def policy(self, **changes: Any) -> EffectivePolicy:
        values: dict[str, Any] = {
            "runner": RunnerKind.LOCAL,
            "limits": Limits(
                timeout_ms=30_000, memory_mb=512, cpu_cores=1, max_children=10, allow_fork=True
            ),
            "read": (str(self.repo),),
            "write": (str(self.work),),
            "deny": (str(self.repo / ".actum"),),
            "protect": (),
            "network": NetworkPolicy(enabled=False, allow=(), deny=(), outbound=()),
            "environment": (),
        }
        return EffectivePolicy(**values | changes)

    def check(
        self,
        entry: Entry | None = None,
        *,
        policy: Mapping[str, Any] | None = None,
        sandbox: SandboxRequest | None = None,
        output_files: tuple[str, ...] = (),
        **inputs: Any,
    ) -> Checked:
        entry = entry or make_entry()
        inputs = {"working_directory": str(self.work), "arguments": ("x",)} | inputs
        contract = make_contract(
            sandbox=sandbox, outputs=ExpectedOutputs(output_files=output_files), **inputs
        )
        return check_inputs(
            contract,
            build_call(contract, entry),
            entry,
            self.policy(environment=approved_names(entry), **policy or {}),
            root=str(self.repo),
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path.resolve())
    for directory in (project.work, project.outside, project.repo / ".actum"):
        directory.mkdir(parents=True)
    (project.work / "in.txt").write_text("x")
    (project.outside / "secret").write_text("s")
    (project.repo / ".actum" / "actum.db").write_text("db")
    return project


def codes(violations: tuple[Violation, ...]) -> list[tuple[str, str]]:
    return [(violation.code, violation.field) for violation in violations]


def verdict(checked: Checked, code: str) -> CheckResult:
    (check,) = [check for check in checked.checks if check.code == code]
    return check.result


# IV-01


@pytest.mark.req("000-56")
def test_a_listed_command_passes_and_an_unlisted_one_is_blocked(project: Project) -> None:
    assert project.check().violations == ()
    checked = project.check(make_entry(scope=make_scope(commands=("grep", "rgx", "rg x y"))))
    assert codes(checked.violations) == [("IV-01", "inputs.command")]
    assert verdict(checked, "IV-01") is CheckResult.BLOCKED


@pytest.mark.req("000-57")
@pytest.mark.parametrize("commands", [(), ("",), (" ",)])
def test_an_empty_allowlist_blocks_everything(project: Project, commands: tuple[str, ...]) -> None:
    checked = project.check(make_entry(scope=make_scope(commands=commands)))
    assert codes(checked.violations) == [("IV-01", "inputs.command")]


@pytest.mark.req("000-5")
def test_a_command_that_is_not_what_the_adapter_runs_is_blocked_even_if_listed(
    project: Project,
) -> None:
    checked = project.check(make_entry(scope=make_scope(commands=("rg", "sh"))), command="sh")
    assert codes(checked.violations) == [("IV-01", "inputs.command")]
    assert "'rg'" in checked.violations[0].message


def git() -> Entry:
    return make_entry(
        cli=make_cli(
            executable="git", base_args=("-c", "safe.directory=*", "--no-pager"), arg_mapping={}
        ),
        scope=make_scope(commands=("git status", "git log")),
        args_schema={},
    )


@pytest.mark.req("000-56")
@pytest.mark.parametrize(
    ("arguments", "permitted"),
    [
        (("status",), True),
        (("log", "-n", "1"), True),
        (("push",), False),
        ((), False),
        (("statusx",), False),
        (("-c", "alias.status=sh", "status"), False),
        (("--exec-path=/tmp/evil", "status"), False),
        (("push", "status"), False),
    ],
)
def test_an_entry_with_a_subcommand_permits_only_that_subcommand(
    project: Project, arguments: tuple[str, ...], permitted: bool
) -> None:
    checked = project.check(git(), command="git", arguments=arguments)
    assert codes(checked.violations) == ([] if permitted else [("IV-01", "inputs.command")])


def test_a_subcommand_that_the_adapter_itself_puts_first_is_the_one_that_counts(
    project: Project,
) -> None:
    for base_args, permitted in ((("status",), True), (("--no-pager", "push"), False)):
        entry = make_entry(
            cli=make_cli(executable="git", base_args=base_args, arg_mapping={}),
            scope=make_scope(commands=("git status",)),
            args_schema={},
        )
        checked = project.check(entry, command="git", arguments=("status",))
        assert (checked.violations == ()) is permitted


# IV-02


def test_the_characters_are_the_seeds_twenty() -> None:
    assert len(SEED_CHARACTERS) == 20
    assert frozenset(SEED_CHARACTERS) == SHELL_CHARACTERS


@pytest.mark.req("000-58", "000-64")
@pytest.mark.parametrize("character", SEED_CHARACTERS)
def test_a_shell_character_is_blocked_and_in_a_literal_it_is_recorded_as_escaped(
    project: Project, character: str
) -> None:
    value = f"a{character}b"
    blocked = project.check(arguments=("ok", value))
    assert codes(blocked.violations) == [("IV-02", "inputs.arguments[1]")]
    assert verdict(blocked, "IV-02") is CheckResult.BLOCKED

    escaped = project.check(arguments=(), parameters={"pattern": value})
    assert escaped.violations == ()
    assert escaped.checks[1].result is CheckResult.ESCAPED
    assert escaped.checks[1].names == ("inputs.parameters.pattern",)
    assert escaped.call.argv[-1] == value


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\x00", "\x7f"])
def test_control_characters_are_blocked(project: Project, character: str) -> None:
    checked = project.check(arguments=(f"a{character}b",))
    assert codes(checked.violations) == [("IV-02", "inputs.arguments[0]")]


def test_harmless_characters_pass_untouched(project: Project) -> None:
    arguments = ("a b", "tab\there", "-n", "--x=y", "ä€𝄞", "~", "%", "^", "@", "a,b:c+d", "")
    checked = project.check(arguments=arguments)
    assert checked.violations == ()
    assert checked.call.argv[3:] == arguments
    assert verdict(checked, "IV-02") is CheckResult.PASSED


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_what_no_argument_can_hold_is_blocked_even_in_a_literal(
    project: Project, value: str
) -> None:
    schema = {"properties": {"arguments": {"items": {"x-actum": "literal"}}}}
    checked = project.check(make_entry(args_schema=schema), arguments=(value,))
    assert codes(checked.violations) == [("IV-02", "inputs.arguments[0]")]


def test_the_adapters_own_text_is_not_judged_but_the_value_inside_it_is(
    project: Project,
) -> None:
    entry = make_entry(
        cli=make_cli(base_args=("--glob=!*.lock",), arg_mapping={"size": "--[size]={value}"}),
        args_schema={},
    )
    assert project.check(entry, arguments=(), parameters={"size": "1"}).violations == ()
    checked = project.check(entry, arguments=(), parameters={"size": "1;"})
    assert codes(checked.violations) == [("IV-02", "inputs.parameters.size")]


# IV-03


def search(project: Project, path: str, **more: Any) -> Checked:
    return project.check(arguments=(), parameters={"pattern": "x", "path": path}, **more)


PATH_FIELD = [("IV-03", "inputs.parameters.path")]


@pytest.mark.req("000-59", "000-60", "000-65")
@pytest.mark.parametrize(
    "path",
    [
        "../../outside/secret",
        "sub/../../../outside",
        "./../../outside",
        "..//..//outside",
        "../../../../../../../../etc/passwd",
        "link/secret",
        "link",
        "loop/../../../outside",
        "../.actum/actum.db",
        "../.actum",
        "nowhere/../../.actum/x",
    ],
)
def test_a_path_that_escapes_is_refused_however_it_is_written(project: Project, path: str) -> None:
    (project.work / "sub").mkdir()
    (project.work / "link").symlink_to(project.outside)
    (project.work / "loop").symlink_to("loop")
    assert codes(search(project, path).violations) == PATH_FIELD


@pytest.mark.req("000-59", "000-65")
@pytest.mark.parametrize(
    ("path", "reaches"),
    [
        ("../work/in.txt", "repo/work/in.txt"),
        ("sub/../in.txt", "repo/work/in.txt"),
        ("..", "repo"),
        ("dir/../-rf", "repo/work/-rf"),
        ("inner/../x", "repo/x"),
    ],
)
def test_an_inner_parent_step_is_normalised_away_before_the_tool_sees_it(
    project: Project, path: str, reaches: str
) -> None:
    (project.work / "sub").mkdir()
    (project.repo / "lib").mkdir()
    (project.work / "inner").symlink_to(project.repo / "lib")  # inner/.. is repo, not work
    checked = search(project, path)
    assert checked.violations == ()
    assert checked.call.argv[-1] == str(project.root / reaches)


def test_a_path_without_parent_steps_reaches_the_tool_as_written(project: Project) -> None:
    for path in (".", "in.txt", "./in.txt", "not yet there", "a..b", "...", str(project.work)):
        checked = search(project, path)
        assert checked.violations == ()
        assert checked.call.argv[-1] == path


def test_a_path_inside_an_element_is_judged_without_the_adapters_text(project: Project) -> None:
    entry = make_entry(
        cli=make_cli(arg_mapping={"path": "--file={value}"}),
        args_schema={"properties": {"path": {"x-actum": "path"}}},
    )
    good = project.check(entry, arguments=(), parameters={"path": "../work/in.txt"})
    assert good.call.argv[-1] == f"--file={project.work / 'in.txt'}"
    bad = project.check(entry, arguments=(), parameters={"path": "../../outside"})
    assert codes(bad.violations) == PATH_FIELD


@pytest.mark.req("000-66")
@pytest.mark.parametrize("path", ["..\\outside", "a\\..\\..\\x", "..\\\\x", "a/..\\x", "a\\.."])
@pytest.mark.parametrize("field", ["inputs.working_directory", "inputs.input_files[0]"])
def test_climbing_with_backslashes_is_refused(project: Project, path: str, field: str) -> None:
    if field == "inputs.working_directory":
        checked = project.check(working_directory=f"{project.work}/{path}")
    else:
        checked = project.check(input_files=(path,))
    assert codes(checked.violations) == [("IV-03", field)]
    assert "backslash" in checked.violations[0].message


@pytest.mark.req("000-69")
@pytest.mark.parametrize(
    "path",
    [
        "C:\\Windows\\system32",
        "c:/windows/system32",
        "C:\\WINDOWS",
        "c:\\x/../Windows/y",
        "\\\\?\\C:\\Windows\\x",
        "d:/Windows/",
    ],
)
def test_a_path_below_the_windows_folder_is_refused(project: Project, path: str) -> None:
    checked = project.check(input_files=(path,))
    assert codes(checked.violations) == [("IV-03", "inputs.input_files[0]")]
    assert "exist" not in checked.violations[0].message


@pytest.mark.req("000-67", "000-68")
@pytest.mark.parametrize("directory", ["/etc", "/var"])
def test_a_system_path_needs_an_approved_elevated_policy_that_lists_it(
    project: Project, directory: str
) -> None:
    (project.work / "alias").symlink_to(directory)
    elevated = SandboxRequest(filesystem=FilesystemRequest(level=FilesystemLevel.ELEVATED))
    listed = {"read": (str(project.repo), directory)}
    approved = listed | {"approvals": ("AG-05:user:boss",)}
    for path in (directory, f"{directory}/x/y", "alias/x"):
        assert codes(search(project, path).violations) == PATH_FIELD
        assert codes(search(project, path, policy=listed).violations) == PATH_FIELD
        assert codes(search(project, path, policy=approved).violations) == PATH_FIELD
        assert codes(search(project, path, policy=listed, sandbox=elevated).violations) == (
            PATH_FIELD
        )
        assert search(project, path, policy=approved, sandbox=elevated).violations == ()
        # Not listed: reading everything is not a list.
        everything = approved | {"read": ("/",)}
        assert codes(search(project, path, policy=everything, sandbox=elevated).violations) == (
            PATH_FIELD
        )


@pytest.mark.req("000-67", "000-68")
@pytest.mark.parametrize("name", ["etc", "var", "etc/passwd", "var/../etc"])
def test_a_folder_of_the_project_that_is_called_like_a_system_path_is_fine(
    project: Project, name: str
) -> None:
    (project.work / "var").mkdir()
    assert search(project, name).violations == ()


def test_a_neighbour_whose_name_only_begins_alike_is_outside(project: Project) -> None:
    (project.root / "repo2").mkdir()
    assert codes(search(project, "../../repo2").violations) == PATH_FIELD


@pytest.mark.req("000-8")
def test_the_working_directory_must_exist_and_be_permitted(project: Project) -> None:
    (project.work / "out").symlink_to(project.outside)
    cases = {
        str(project.work / "missing"): "does not exist",
        str(project.work / "in.txt"): "not a directory",
        str(project.outside): "outside the permitted paths",
        str(project.work / "out"): "outside the permitted paths",
        str(project.repo / ".actum"): "denied",
        f"{project.work}/../../outside": "outside the permitted paths",
        "work": "absolute",
        "": "absolute",
    }
    for value, says in cases.items():
        checked = project.check(working_directory=value)
        assert codes(checked.violations) == [("IV-03", "inputs.working_directory")]
        assert says in checked.violations[0].message


def test_the_working_directory_reaches_the_tool_resolved(project: Project) -> None:
    (project.root / "alias").symlink_to(project.repo)
    checked = project.check(working_directory=f"{project.root}/./alias/work/")
    assert checked.violations == ()
    assert checked.call.working_directory == str(project.work)


@pytest.mark.parametrize("value", ["alias", "alias/sub", "work/inner", "work/inner/work/../work"])
def test_the_working_directory_leads_through_no_link_that_a_tool_may_have_made(
    project: Project, value: str
) -> None:
    (project.work / "sub").mkdir()
    (project.repo / "alias").symlink_to(project.work)
    (project.work / "inner").symlink_to(project.repo)
    checked = project.check(working_directory=f"{project.repo}/{value}")
    assert codes(checked.violations) == [("IV-03", "inputs.working_directory")]
    assert "which a tool may have made; name " in checked.violations[0].message
    named = checked.violations[0].message.rpartition("name ")[2].removesuffix(" itself.")
    assert project.check(working_directory=named).violations == ()


@pytest.mark.req("000-9")
def test_an_input_file_must_be_a_readable_file_within_reach(project: Project) -> None:
    os.mkfifo(project.work / "pipe")
    (project.work / "dangling").symlink_to("nothing")
    (project.work / "leak").symlink_to(project.outside / "secret")
    cases = {
        "missing": "does not exist",
        "dangling": "does not exist",
        ".": "not a regular file",
        "pipe": "not a regular file",
        "leak": "outside",
        str(project.outside / "secret"): "outside",
        "../.actum/actum.db": "denied",
    }
    for value, says in cases.items():
        checked = project.check(input_files=("in.txt", value))
        assert codes(checked.violations) == [("IV-03", "inputs.input_files[1]")]
        assert says in checked.violations[0].message
    good = project.check(input_files=("in.txt", "../work/./in.txt"))
    assert good.violations == ()
    assert good.call.input_files == (str(project.work / "in.txt"),) * 2


@pytest.mark.req("000-9")
def test_an_input_file_that_the_caller_cannot_read_is_refused() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        project = Project(Path(directory).resolve())
        project.work.mkdir(parents=True)
        (project.work / "in.txt").write_text("x")
        with somebody_else():
            assert project.check(input_files=("in.txt",)).violations == ()
            open_to_all = (project.work / "in.txt").stat().st_mode
        (project.work / "in.txt").chmod(0)
        with somebody_else():
            checked = project.check(input_files=("in.txt",))
        assert open_to_all & 0o004
        assert codes(checked.violations) == [("IV-03", "inputs.input_files[0]")]


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may read every file, so it steps aside."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_refusal_does_not_tell_whether_a_file_out_of_reach_exists(project: Project) -> None:
    def says(name: str) -> str:
        checked = project.check(input_files=(str(project.outside / name),))
        return checked.violations[0].message.replace(name, "")

    # A long path is cut in a message, perhaps within the name: alike as far as that.
    assert says("secret") == says("secreT")


@pytest.mark.req("000-59")
def test_output_files_must_lie_where_the_tool_may_write(project: Project) -> None:
    checked = project.check(output_files=("new/../out.txt", "../read-only.txt", "/etc/out"))
    assert codes(checked.violations) == [
        ("IV-03", "outputs.output_files[1]"),
        ("IV-03", "outputs.output_files[2]"),
    ]
    assert checked.output_files == (str(project.work / "out.txt"),)


@pytest.mark.req("000-60")
@given(steps=st.lists(st.sampled_from(["..", ".", "sub", "link", "", "a"]), max_size=8))
def test_no_combination_of_steps_leaves_the_grant(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = Project(tmp_path_factory.mktemp("steps").resolve())
    project.work.mkdir(parents=True)
    (project.work / "sub").mkdir()
    (project.work / "link").symlink_to(project.repo)
    path = "/".join(steps).lstrip("/")
    checked = search(project, path)
    arrives = os.path.realpath(project.work / path)
    inside = os.path.commonpath([arrives, project.repo]) == str(project.repo)
    hidden = arrives.startswith(f"{project.repo}/.actum")
    assert (checked.violations == ()) == (inside and not hidden)
    if checked.violations == ():
        given_to_tool = checked.call.argv[-1]
        assert ".." not in given_to_tool.split("/")
        assert os.path.realpath(project.work / given_to_tool) == arrives


# IV-04


@pytest.mark.req("000-7", "000-61")
def test_only_approved_variables_stay_and_the_others_are_named_without_values(
    project: Project,
) -> None:
    entry = make_entry(environment=("LANG", "RG_X"))
    checked = project.check(
        entry, environment={"LANG": "de", "SECRET_B": "hunter2", "A_KEY": "hunter2", "RG_X": ""}
    )
    assert checked.violations == ()
    assert checked.call.environment == {"LANG": "de", "RG_X": ""}
    assert checked.checks[3].result is CheckResult.STRIPPED
    assert checked.checks[3].names == ("A_KEY", "SECRET_B")
    assert "hunter2" not in f"{checked}"


def test_a_variable_that_the_adapter_maps_a_parameter_to_is_approved(project: Project) -> None:
    entry = make_entry(cli=make_cli(env_mapping={"colour": "RG_COLOUR"}), args_schema={})
    checked = project.check(entry, parameters={"colour": "red"})
    assert checked.call.environment == {"RG_COLOUR": "red"}
    assert verdict(checked, "IV-04") is CheckResult.PASSED


DANGEROUS = [
    "LD_AUDIT", "LD_ANYTHING", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS",
    "GLIBC_TUNABLES", "IFS", "PS4", "GCONV_PATH", "PERL5OPT", "RUBYOPT", "GIT_SSH_COMMAND",
    "GIT_CONFIG_COUNT", "BASH_FUNC_ls%%", "PYTHONHOME", "JAVA_TOOL_OPTIONS", "HOME", "TMPDIR",
    "ACTUM_ARTIFACTS", "LESSOPEN", "EDITOR",
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("LD_PRELOAD", marks=pytest.mark.req("000-70")),
        pytest.param("LD_LIBRARY_PATH", marks=pytest.mark.req("000-71")),
        pytest.param("PATH", marks=pytest.mark.req("000-72")),
        *DANGEROUS,
    ],
)
def test_a_dangerous_variable_is_stripped_even_if_the_tool_approves_it(
    project: Project, name: str
) -> None:
    for entry in (
        make_entry(environment=(name, "LANG"), path=("/opt/tool/bin",)),
        make_entry(cli=make_cli(env_mapping={"colour": name}), environment=("LANG",)),
    ):
        checked = project.check(entry, environment={name: "/evil", "LANG": "C"})
        assert checked.call.environment == {"LANG": "C"}
        assert checked.checks[3].names == (name,)
        assert checked.violations == ()


@pytest.mark.parametrize("value", ["a\0b", "\udfff"])
def test_a_value_that_no_variable_can_hold_blocks(project: Project, value: str) -> None:
    checked = project.check(make_entry(environment=("X",)), environment={"X": value})
    assert codes(checked.violations) == [("IV-04", "inputs.environment.X")]


# IV-05


@pytest.mark.req("000-62")
def test_stdin_at_the_limit_passes_and_one_byte_more_is_rejected(project: Project) -> None:
    assert project.check(stdin=b"x" * STDIN_BYTES).violations == ()
    checked = project.check(stdin=b"x" * (STDIN_BYTES + 1))
    assert codes(checked.violations) == [("IV-05", "inputs.stdin")]
    assert verdict(checked, "IV-05") is CheckResult.BLOCKED
    assert "rejected" in checked.violations[0].message


@pytest.mark.req("000-62")
def test_input_files_are_limited_in_total(project: Project) -> None:
    def sized(name: str, size: int) -> str:
        with open(project.work / name, "wb") as file:
            file.truncate(size)
        return name

    half = INPUT_FILES_BYTES // 2
    exact = (sized("a", half), sized("b", INPUT_FILES_BYTES - half))
    assert project.check(input_files=exact).violations == ()
    over = (*exact, sized("c", 1))
    assert codes(project.check(input_files=over).violations) == [("IV-05", "inputs.input_files")]


# all together


@pytest.mark.req("000-63")
def test_all_five_checks_are_evaluated_and_every_violation_comes_back_at_once(
    project: Project,
) -> None:
    checked = project.check(
        make_entry(scope=make_scope(commands=()), environment=("X",)),
        arguments=("a;b", "ok", "c|d"),
        working_directory="/nonexistent",
        input_files=(str(project.outside / "secret"),),
        output_files=("/etc/x",),
        environment={"X": "\0", "Y": "1"},
        stdin=b"x" * (STDIN_BYTES + 1),
    )
    assert codes(checked.violations) == [
        ("IV-01", "inputs.command"),
        ("IV-02", "inputs.arguments[0]"),
        ("IV-02", "inputs.arguments[2]"),
        ("IV-03", "inputs.working_directory"),
        ("IV-03", "inputs.input_files[0]"),
        ("IV-03", "outputs.output_files[0]"),
        ("IV-04", "inputs.environment.X"),
        ("IV-05", "inputs.stdin"),
    ]
    assert [check.code for check in checked.checks] == ["IV-01", "IV-02", "IV-03", "IV-04", "IV-05"]
    assert {check.result for check in checked.checks} == {CheckResult.BLOCKED}


def test_a_sound_call_passes_all_five_unchanged(project: Project) -> None:
    checked = project.check()
    assert [check.result for check in checked.checks] == [CheckResult.PASSED] * 5
    assert [check.names for check in checked.checks] == [()] * 5
    assert checked.call.argv == ("rg", "--json", "--no-heading", "x")
