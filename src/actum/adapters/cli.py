"""CLI adapters: from a contract to the exact command line.

The order of argv is fixed: `base_args`, then the parameters whose template starts with `-` in the
order of `arg_mapping`, then `--`, then the other parameters in the order of `arg_mapping`, then
`inputs.arguments` unchanged. For an interpreter, `adapters.given_program` finds the program among
them first. The `--` is present exactly when a parameter was rendered as a
positional, so that no positional can be read as an option; a call of options and raw arguments
only (a shell, an interpreter, git) has none.

This module checks only the tool's own schema, uses no shell and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from actum.adapters.args_schema import RAW, Marks, check_parameters, marks_of
from actum.adapters.given_program import given_program
from actum.adapters.template import Template, parse_templates
from actum.contract.call import Argument, Call, secrets_asked
from actum.contract.canonical import NotCanonical, canonical
from actum.contract.model import Contract, Json
from actum.errors import Refused, Violation
from actum.policy.allowlist import permitting_entry
from actum.registry.model import Entry
from actum.value import replace

_SHOWN = 80  #: characters of an offending value that a message repeats


def build_call(contract: Contract, entry: Entry, *, by_channel: bool = False) -> Call:
    """What would run; raises `Refused` with every violation of the tool's schema at once.

    `by_channel`: an interpreter's program is sent later, on a channel to the running tool.
    """
    cli = entry.adapter.cli
    if cli is None:
        raise AssertionError(f"{entry.adapter.adapter_id} is not a cli adapter")
    templates, broken = parse_templates(cli.arg_mapping, "interface.cli.arg_mapping")
    if broken:
        raise Refused(
            "TEMPLATE_INVALID",
            f"Adapter {entry.adapter.adapter_id} has templates that cannot be used.",
            remedy="Fix them and have the tool approved again.",
            violations=broken,
        )
    inputs = contract.inputs
    program = given_program(
        replace(cli, program=None) if by_channel else cli, inputs, entry.tool.name
    )
    schema = entry.tool.args_schema
    known = [name for name in (*cli.arg_mapping, *cli.env_mapping) if name != RAW]
    parameters = {name: inputs.parameters[name] for name in inputs.parameters if name in known}
    violations = [
        *_unknown(inputs.parameters, known),
        *check_parameters(schema, parameters, inputs.arguments),
    ]
    given = {name: value for name, value in parameters.items() if value is not None}
    rendered: list[tuple[Template, tuple[Argument, ...]]] = []
    for name, template in templates.items():
        if name in given:
            try:
                arguments = tuple(_render(name, template, given[name], marks_of(schema, name)))
            except _Unrenderable as error:
                violations.append(error.violation)
            else:
                rendered.append((template, arguments))
    mapped: dict[str, str] = {}
    for name, variable in cli.env_mapping.items():
        if name in given:
            try:
                mapped[variable] = _text(f"inputs.parameters.{name}", given[name])
            except _Unrenderable as error:
                violations.append(error.violation)
    if violations:
        raise Refused(
            "ARGS_INVALID",
            f"{len(violations)} problem(s) in inputs.parameters of {entry.tool.name}: "
            + " ".join(violation.message for violation in violations),
            violations=tuple(dict.fromkeys(violations)),
        )
    raw_marks = marks_of(schema, RAW)
    command_line = (
        *_base(program.base_args),
        *_ordered(rendered),
        *(
            Argument(
                value=value,
                field=f"inputs.arguments[{index}]",
                literal=raw_marks.literal,
                path=raw_marks.path,
            )
            for index, value in enumerate(program.arguments)
        ),
    )
    permitted = permitting_entry(entry.tool.scope.commands, inputs.command, command_line)
    return Call(
        tool=entry.tool_ref,
        adapter=entry.adapter_ref,
        operation=permitted or inputs.command,
        program=cli.executable,
        arguments=command_line,
        environment={**inputs.environment, **mapped},
        stdin=program.stdin,
        working_directory=inputs.working_directory,
        input_files=inputs.input_files,
        secrets=secrets_asked(inputs),
        program_file=program.file,
    )


class _Unrenderable(Exception):
    def __init__(self, field: str, value: Json, message: str) -> None:
        self.violation = Violation(
            code="ARGS_INVALID", field=field, value=str(value)[:_SHOWN], message=message
        )


def _unknown(parameters: Mapping[str, Json], known: list[str]) -> Iterator[Violation]:
    listed = ", ".join(sorted(set(known))) or "none"
    for name in parameters:
        if name not in known:
            yield Violation(
                code="ARGS_INVALID",
                field=f"inputs.parameters.{name}",
                value=name[:_SHOWN],
                message=f"The adapter has no parameter {name[:_SHOWN]!r}; it has: {listed}.",
            )


def _base(words: tuple[str, ...]) -> tuple[Argument, ...]:
    return tuple(
        Argument(value=value, field=f"interface.cli.base_args[{index}]", fixed=True)
        for index, value in enumerate(words)
    )


def _ordered(rendered: list[tuple[Template, tuple[Argument, ...]]]) -> Iterator[Argument]:
    positionals: list[Argument] = []
    for template, arguments in rendered:
        if template.option:
            yield from arguments
        else:
            positionals.extend(arguments)
    if positionals:
        yield Argument(value="--", field="interface.cli", fixed=True)
        yield from positionals


def _render(name: str, template: Template, value: Json, marks: Marks) -> Iterator[Argument]:
    field = f"inputs.parameters.{name}"
    if template.flag:
        if not isinstance(value, bool):
            raise _Unrenderable(field, value, f"{name} is a switch: give true or false.")
        if value:
            for word in template.words:
                yield Argument(value=word.prefix, field=field, fixed=True)
        return
    if isinstance(value, (list, tuple)):
        if not template.bare:
            raise _Unrenderable(field, value, f"{name} takes one value, not a list.")
        for index, item in enumerate(value):
            yield from _words(f"{field}[{index}]", template, item, marks)
        return
    yield from _words(field, template, value, marks)


def _words(field: str, template: Template, value: Json, marks: Marks) -> Iterator[Argument]:
    text = _text(field, value)
    if text.startswith("-") and not marks.literal:
        # After an option, or before a lenient parser, it would be an option of the caller's.
        raise _Unrenderable(
            field, text, f"{field} starts with '-'; only a parameter marked literal may."
        )
    for word in template.words:
        if word.placeholder:
            yield Argument(
                value=word.render(text),
                field=field,
                literal=marks.literal,
                path=marks.path,
                prefix=word.prefix,
                suffix=word.suffix,
            )
        else:
            yield Argument(value=word.prefix, field=field, fixed=True)


def _text(field: str, value: Json) -> str:
    """One scalar as text: numbers in canonical form, so that 5.0 and 5 are one call."""
    if isinstance(value, str):
        if "\0" in value:
            raise _Unrenderable(field, "", f"{field} contains a NUL byte, which ends an argument.")
        return value
    if not isinstance(value, (bool, int, float)):
        raise _Unrenderable(
            field, value, f"{field} must be a string, number or boolean to become an argument."
        )
    try:
        return canonical(value).decode()
    except NotCanonical as error:
        raise _Unrenderable(field, value, f"{field}: {error.message}") from error
