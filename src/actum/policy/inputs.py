"""Input validation, IV-01 to IV-05: evaluates all five and returns all violations together.

Blocked means that nothing may run. Escaped and stripped names are recorded and the run goes on:
arguments are passed as argv and never through a shell, so a literal one is inert, and a variable
that is not approved does not reach the tool. Nothing is truncated.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from actum.contract import snippet_order
from actum.contract.call import Argument, Call, Check, CheckResult, EffectivePolicy
from actum.contract.limits import INPUT_FILES_BYTES, STDIN_BYTES
from actum.contract.model import SCRATCH, SCRATCH_INSIDE, Contract, FilesystemLevel
from actum.errors import Violation
from actum.policy.allowlist import permitting_entry, permitting_operation
from actum.policy.gates import ELEVATED
from actum.policy.paths import (
    PathRefused,
    Reach,
    has_parent_step,
    is_covered,
    is_text,
    judge,
    resolve,
    status_of,
)
from actum.registry.model import AdapterKind, Entry
from actum.registry.path_snapshot import PathSnapshot
from actum.value import replace, value

SHELL_CHARACTERS = frozenset(";|&$`(){}[]<>\\\"'!#*?")
_CONTROL = frozenset(chr(code) for code in (*range(0x20), 0x7F)) - {"\t"}
_SHOWN = 80


@value
class Checked:
    """The verdict, and the call as it may run: paths resolved, environment filtered."""

    checks: tuple[Check, ...]  #: IV-01 … IV-05, in this order
    violations: tuple[Violation, ...]
    call: Call
    output_files: tuple[str, ...]  #: absolute, resolved


def check_inputs(
    contract: Contract,
    call: Call,
    entry: Entry,
    policy: EffectivePolicy,
    snapshot: PathSnapshot | None = None,
    *,
    root: str,
) -> Checked:
    """Evaluate IV-01..05 for `call` under `policy`, in the project at `root`."""
    command = tuple(_command(contract, call, entry))
    checked_arguments = [_argument(argument) for argument in call.arguments if not argument.fixed]
    paths = _Paths.of(contract, call, policy, snapshot or PathSnapshot(), root)
    kept, stripped, unfit = _environment(call, policy.environment)
    sizes = tuple(_sizes(call, paths.input_sizes))
    arguments = tuple(found for found, _ in checked_arguments if found)
    escaped = tuple(dict.fromkeys(field for _, field in checked_arguments if field))
    return Checked(
        checks=(
            _check("IV-01", command),
            _check("IV-02", arguments, CheckResult.ESCAPED, escaped),
            _check("IV-03", paths.violations),
            _check("IV-04", unfit, CheckResult.STRIPPED, stripped),
            _check("IV-05", sizes),
        ),
        violations=(*command, *arguments, *paths.violations, *unfit, *sizes),
        call=replace(
            call,
            arguments=paths.arguments,
            environment=kept,
            working_directory=paths.working_directory,
            input_files=paths.input_files,
        ),
        output_files=paths.output_files,
    )


def _check(
    code: str,
    violations: tuple[Violation, ...],
    otherwise: CheckResult = CheckResult.PASSED,
    names: tuple[str, ...] = (),
) -> Check:
    if violations:
        fields = tuple(dict.fromkeys(violation.field for violation in violations))
        return Check(code=code, result=CheckResult.BLOCKED, names=fields)
    return Check(code=code, result=otherwise if names else CheckResult.PASSED, names=names)


def _blocked(code: str, field: str, value: str, message: str) -> Violation:
    return Violation(code=code, field=field, value=value[:_SHOWN], message=message)


def _command(contract: Contract, call: Call, entry: Entry) -> Iterator[Violation]:
    """IV-01, checked on what would run, not on what the call claims."""
    asked, commands = contract.inputs.command, entry.tool.scope.commands
    if entry.adapter.cli is None:
        yield from _operation(asked, call, entry)
        return
    if asked != call.program:
        yield _blocked(
            "IV-01",
            "inputs.command",
            asked,
            f"inputs.command is {asked!r}, but adapter {entry.adapter.adapter_id} runs "
            f"{call.program!r}; write that.",
        )
    elif permitting_entry(commands, call.program, call.arguments) is None:
        listed = ", ".join(commands) or "nothing"
        yield _blocked(
            "IV-01",
            "inputs.command",
            asked,
            f"{asked!r} with these arguments is not in scope.commands of {entry.tool.tool_id} "
            f"(permitted: {listed}).",
        )


def _operation(asked: str, call: Call, entry: Entry) -> Iterator[Violation]:
    if asked != call.operation:
        raise AssertionError(f"{asked} was built as {call.operation}")
    if permitting_operation(entry, asked) is None:
        field = "endpoints" if entry.adapter.kind is AdapterKind.API else "commands"
        listed = ", ".join(getattr(entry.tool.scope, field)) or "nothing"
        yield _blocked(
            "IV-01",
            "inputs.command",
            asked,
            f"The operation {asked!r} is not in scope.{field} of {entry.tool.tool_id} "
            f"(permitted: {listed}).",
        )


def _argument(argument: Argument) -> tuple[Violation | None, str | None]:
    """IV-02: the violation, or the field to record as escaped, or neither."""
    given = argument.given
    if "\0" in given or not is_text(given):
        message = "A NUL byte or a lone surrogate cannot be part of an argument."
        return _blocked("IV-02", argument.field, given, message), None
    suspicious = sorted((SHELL_CHARACTERS | _CONTROL) & set(given))
    if not suspicious:
        return None, None
    if argument.literal:
        return None, argument.field
    shown = " ".join(c if c in SHELL_CHARACTERS else f"U+{ord(c):04X}" for c in suspicious)
    message = (
        f"{argument.field} contains {shown}; only an argument that the tool's args_schema marks "
        "'x-actum: literal' may."
    )
    return _blocked("IV-02", argument.field, given, message), None


@value
class _Paths:
    """IV-03 and the call's resolved paths. A refused path stays as given."""

    working_directory: str
    input_files: tuple[str, ...]
    input_sizes: tuple[int, ...]
    output_files: tuple[str, ...]
    arguments: tuple[Argument, ...]
    violations: tuple[Violation, ...]

    @classmethod
    def of(
        cls,
        contract: Contract,
        call: Call,
        policy: EffectivePolicy,
        snapshot: PathSnapshot,
        root: str,
    ) -> _Paths:
        approved = contract.sandbox.filesystem.level is FilesystemLevel.ELEVATED and any(
            entry.startswith(f"{ELEVATED}:") for entry in policy.approvals
        )
        readable = Reach(
            inside=(*policy.read, *policy.write), deny=policy.deny, system_approved=approved
        )
        writable = Reach(
            inside=policy.write, deny=policy.deny, system_approved=approved, writing=True
        )
        violations: list[Violation] = []
        base = call.working_directory if os.path.isabs(call.working_directory) else "/"

        def refuse(field: str, value: str, why: PathRefused) -> None:
            message = f"{field} {value[:_SHOWN]!r} is refused: {why}."
            violations.append(_blocked("IV-03", field, value, message))

        try:
            if call.working_directory == SCRATCH:
                base = SCRATCH_INSIDE
            else:
                base = _directory(call.working_directory, readable, snapshot)
                _require_no_link(
                    call.working_directory, base, (snapshot.real(root), *policy.write), snapshot
                )
        except PathRefused as why:
            refuse("inputs.working_directory", call.working_directory, why)

        inputs: list[str] = []
        sizes: list[int] = []
        for index, named in enumerate(call.input_files):
            try:
                path, size = _input_file(named, base, readable, snapshot)
            except PathRefused as why:
                refuse(f"inputs.input_files[{index}]", named, why)
            else:
                inputs.append(path)
                sizes.append(size)

        program, program_path = call.program_file, ""
        if program is not None:
            try:
                program_path, size = _input_file(program.path, base, readable, snapshot)
            except PathRefused as why:
                message = f"{program.field} {program.path[:_SHOWN]!r} is refused: {why}. "
                violations.append(
                    _blocked("IV-03", program.field, program.path, message + program.otherwise)
                )
            else:
                inputs.append(program_path)
                sizes.append(size)

        outputs: list[str] = []
        for index, named in enumerate(contract.outputs.output_files):
            try:
                path = resolve(named, base, snapshot)
                judge(path, writable)
            except PathRefused as why:
                refuse(f"outputs.output_files[{index}]", named, why)
            else:
                outputs.append(path)

        arguments: list[Argument] = []
        for argument in call.arguments:
            if program is not None and argument.field == program.field:
                arguments.append(_program_argument(argument, base, program_path))
                continue
            try:
                arguments.append(_path_argument(argument, base, readable, snapshot))
            except PathRefused as why:
                refuse(argument.field, argument.given, why)
                arguments.append(argument)

        return cls(
            working_directory=base,
            input_files=tuple(inputs),
            input_sizes=tuple(sizes),
            output_files=tuple(outputs),
            arguments=tuple(arguments),
            violations=tuple(violations),
        )


def _directory(value: str, reach: Reach, snapshot: PathSnapshot) -> str:
    if not os.path.isabs(value):
        raise PathRefused("it must be an absolute path")
    path = resolve(value, "/", snapshot)
    judge(path, reach)
    if not stat.S_ISDIR(status_of(path, snapshot).st_mode):
        raise PathRefused("it is not a directory")
    return path


def _require_no_link(value: str, path: str, roots: tuple[str, ...], snapshot: PathSnapshot) -> None:
    """A tool can leave a link where it may write; the target would be granted next."""
    for link in snapshot.links_on(value):
        if is_covered(link, roots):
            raise PathRefused(
                f"it leads through the link {link}, which a tool may have made; name {path} itself"
            )


def _input_file(value: str, base: str, reach: Reach, snapshot: PathSnapshot) -> tuple[str, int]:
    path = resolve(value, base, snapshot)
    judge(path, reach)
    found = status_of(path, snapshot)
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused("it is not a regular file")
    if not snapshot.may(path, os.R_OK, effective_ids=True):
        raise PathRefused("it is not readable")
    return path, found.st_size


def _path_argument(argument: Argument, base: str, reach: Reach, snapshot: PathSnapshot) -> Argument:
    if not argument.path:
        return argument
    path = resolve(argument.given, base, snapshot)
    judge(path, reach)
    if not has_parent_step(argument.given):
        return argument
    # Absolute on purpose: a relative path could start with '-' and become an option.
    return replace(argument, value=f"{argument.prefix}{path}{argument.suffix}")


def _program_argument(argument: Argument, base: str, path: str) -> Argument:
    """As given, unless a link is on the way: the tool would follow it again, when it may lead to
    another file than the sealed one."""
    if not path or os.path.normpath(os.path.join(base, argument.given)) == path:
        return argument
    return replace(argument, value=path)


def _environment(
    call: Call, approved: tuple[str, ...]
) -> tuple[dict[str, str], tuple[str, ...], tuple[Violation, ...]]:
    """IV-04: the environment, the stripped names, and the violations."""
    kept = {name: value for name, value in call.environment.items() if name in approved}
    stripped = tuple(sorted(name for name in call.environment if name not in approved))
    unfit = tuple(
        _blocked(
            "IV-04",
            f"inputs.environment.{name}",
            "",  # never the value: it may be a secret
            f"The value of {name} contains a NUL byte or a lone surrogate, which is not allowed.",
        )
        for name, value in call.environment.items()
        if "\0" in value or not is_text(value)
    )
    return kept, stripped, unfit


def _sizes(call: Call, input_sizes: tuple[int, ...]) -> Iterator[Violation]:
    """IV-05: rejected, not truncated: half an input has another meaning."""
    stdin_bytes, content_bytes = len(call.stdin), 0
    what, more = "stdin is", ""
    if any(each.fixed and each.value == snippet_order.PROGRAM for each in call.arguments):
        stdin_bytes, content_bytes = snippet_order.sizes(call.stdin)
        what, more = "The snippet's code and params are", " Pass large content in files."
    if stdin_bytes > STDIN_BYTES:
        yield _blocked(
            "IV-05",
            "inputs.stdin",
            f"{stdin_bytes} bytes",
            f"{what} {stdin_bytes} bytes, at most {STDIN_BYTES} are accepted: rejected.{more}",
        )
    if content_bytes > INPUT_FILES_BYTES:
        yield _blocked(
            "IV-05",
            "files",
            f"{content_bytes} bytes",
            f"files: they are {content_bytes} bytes together, at most {INPUT_FILES_BYTES} are"
            " accepted: rejected. Put them into the project, and name that folder as cwd.",
        )
    total = sum(input_sizes)
    if total > INPUT_FILES_BYTES:
        yield _blocked(
            "IV-05",
            "inputs.input_files",
            f"{total} bytes",
            f"The input files are {total} bytes together, at most {INPUT_FILES_BYTES} are "
            "accepted: rejected.",
        )
