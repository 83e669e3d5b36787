"""Every door takes the fields of `ExecRequest`, and no other ones."""

from __future__ import annotations

import inspect

from actum import Runtime
from actum.contract.request import OPTIONS, ExecRequest
from actum.doors.cli import exec_command, light_exec
from actum.value import fields

FIELDS = {field.name for field in fields(ExecRequest)}
#: What a caller gives along with a request and no contract holds.
OF_THE_CALL = {"on_output", "cancel", "wait_s", "queue_s", "turn", "changes"}
OF_THE_COMMAND = {"words", "contract", "save", "whose_code", "changes", "wait", "raw"}


def test_the_library_takes_every_field_by_its_name() -> None:
    parameters = set(inspect.signature(Runtime.exec).parameters) - {"self"}
    assert parameters - OF_THE_CALL == FIELDS


def test_the_command_line_has_an_option_for_every_field() -> None:
    assert set(OPTIONS) == FIELDS - {"tool", "arguments"}
    taken = {parameter.name for parameter in exec_command.command.params if parameter.expose_value}
    assert taken - OF_THE_COMMAND == set(OPTIONS)


def test_the_light_reading_knows_the_same_options() -> None:
    spelled = light_exec._ONCE | light_exec._OFTEN
    assert set(spelled.values()) - {"home", "session"} == set(OPTIONS)
