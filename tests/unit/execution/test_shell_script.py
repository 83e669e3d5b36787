from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.errors import ContractInvalid
from actum.execution.shell_script import script_of


def test_one_word_is_the_script_and_several_are_one_command() -> None:
    assert script_of(["ls -la | wc -l"]) == "ls -la | wc -l"
    assert script_of(["ls", "-la", "my file", "$HOME"]) == "ls -la 'my file' '$HOME'"
    assert script_of(["cat", Path("a b")]) == "cat 'a b'"
    assert script_of([]) == ""


@given(
    st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1), min_size=2, max_size=5)
)
def test_each_of_several_words_stays_one(words: list[str]) -> None:
    if any(letter.isspace() for letter in words[0]):
        with pytest.raises(ContractInvalid):
            script_of(words)
    else:
        assert shlex.split(script_of(words)) == words


def test_what_is_no_text_is_named() -> None:
    with pytest.raises(ContractInvalid) as wrong:
        script_of(["ls", 5])  # type: ignore[list-item]
    assert [problem.field for problem in wrong.value.problems] == ["words[1]"]
