"""Which of several active adapters an execution goes through: the one that serves the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from actum import Outcome, Result
from common.made_tools import ANY_TEXT, MadeTools, cli_adapter, made_tools

pytestmark = pytest.mark.sandbox


def printing(adapter_id: str, **more: Any) -> dict[str, Any]:
    """An adapter of echo: what it prints says which adapter it was."""
    return cli_adapter(adapter_id, "echo", base_args=[adapter_id], **more)


@pytest.fixture(scope="module")
def made() -> Iterator[MadeTools]:
    with made_tools() as opened:
        rename = [{"type": "rename", "spec": {"message": "text"}}]
        later = [
            {"type": "rename", "spec": {"word": "message"}},
            {"type": "rename", "spec": {"message": "text"}},
        ]
        opened.add(
            "say",
            [
                printing("ADP-text", arg_mapping={"text": "{text}"}),
                printing("ADP-number", arg_mapping={"number": "{number}"}),
                printing(
                    "ADP-message",
                    arg_mapping={"text": "{text}"},
                    transforms={"input": rename, "output": []},
                ),
                printing(
                    "ADP-word",
                    arg_mapping={"text": "{text}"},
                    transforms={"input": later, "output": []},
                ),
                cli_adapter("ADP-printf", "printf", base_args=[]),
            ],
            parameters={"text": ANY_TEXT, "number": ANY_TEXT},
        )
        yield opened


def say(made: MadeTools, **parameters: str) -> Result:
    return made.rt.exec("say", parameters=parameters, set={"inputs.command": "echo"})


@pytest.mark.req("000-159")
def test_the_adapter_that_knows_the_parameter_is_chosen(made: MadeTools) -> None:
    for _ in range(2):  # the same each time
        result = say(made, number="7").check()
        assert result.result is not None
        assert (result.adapter_id, result.result.stdout) == ("ADP-number", "ADP-number -- 7\n")


@pytest.mark.req("000-159", "000-110")
def test_a_name_that_only_an_input_rename_knows_leads_to_its_adapter(made: MadeTools) -> None:
    # `word` is renamed twice, in the order of the list.
    result = say(made, word="hi").check()
    assert result.result is not None
    assert (result.adapter_id, result.result.stdout) == ("ADP-word", "ADP-word -- hi\n")


@pytest.mark.req("000-159")
def test_the_command_alone_can_decide(made: MadeTools) -> None:
    result = made.rt.exec("say", "hi", set={"inputs.command": "printf"}).check()
    assert result.result is not None
    assert (result.adapter_id, result.result.stdout) == ("ADP-printf", "hi")


@pytest.mark.req("000-159")
@pytest.mark.parametrize("name", ["text", "message"])
def test_an_undecided_choice_is_refused_and_never_guessed(made: MadeTools, name: str) -> None:
    refused = say(made, **{name: "hi"})
    assert (refused.outcome, refused.reason_codes) == (Outcome.REJECTED, ("ADAPTER_AMBIGUOUS",))
    # The control: by its id each of them serves the request.
    chosen = made.rt.exec("say", parameters={name: "hi"}, adapter_id="ADP-message").check()
    assert chosen.result is not None
    assert chosen.result.stdout == "ADP-message -- hi\n"
