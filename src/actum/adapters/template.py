"""Argument templates: how one parameter becomes argv elements.

A template is split on white space before anything is substituted, so a value can never add, remove
or split an element, whatever it contains. `{name}` (the parameter's own name) and `{value}` are the
only placeholders; there are no attributes, indexes, formats or conversions, and no shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from actum.errors import Violation
from actum.value import value

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


@value
class Word:
    """One argv element of a template; `placeholder` tells whether the value goes between."""

    prefix: str
    suffix: str = ""
    placeholder: bool = False

    def render(self, value: str) -> str:
        return f"{self.prefix}{value}{self.suffix}" if self.placeholder else self.prefix


@value
class Template:
    words: tuple[Word, ...]

    @property
    def flag(self) -> bool:
        """Without a placeholder it is a switch: present or absent."""
        return not any(word.placeholder for word in self.words)

    @property
    def bare(self) -> bool:
        """Exactly one placeholder and nothing else: the only form that accepts a list."""
        return self.words == (Word(prefix="", placeholder=True),)

    @property
    def option(self) -> bool:
        return self.words[0].prefix.startswith("-")


def parse_template(name: str, text: str) -> Template:
    """Parse the template of parameter `name`; raises ValueError with the reason."""
    words = tuple(_word(name, word) for word in text.split())
    if not words:
        raise ValueError("the template is empty; write a flag such as -i or a placeholder {value}")
    return Template(words=words)


def _word(name: str, text: str) -> Word:
    found = list(_PLACEHOLDER.finditer(text))
    if not found:
        return Word(prefix=text)
    if len(found) > 1:
        raise ValueError(f"{text!r} holds {len(found)} placeholders; write one per argv element")
    (placeholder,) = found
    if placeholder[1] not in (name, "value"):
        raise ValueError(
            f"{placeholder[0]} is not a placeholder here; write {{{name}}} or {{value}}"
        )
    return Word(
        prefix=text[: placeholder.start()], suffix=text[placeholder.end() :], placeholder=True
    )


def parse_templates(
    mapping: Mapping[str, str], field: str
) -> tuple[dict[str, Template], tuple[Violation, ...]]:
    """(the templates of an adapter by parameter, what is wrong with the others)."""
    templates: dict[str, Template] = {}
    problems: list[Violation] = []
    for name, text in mapping.items():
        try:
            templates[name] = parse_template(name, text)
        except ValueError as error:
            problems.append(
                Violation(
                    code="TEMPLATE_INVALID",
                    field=f"{field}.{name}",
                    value=text,
                    message=f"{error}.",
                )
            )
    return templates, tuple(problems)
