"""The status of an adapter: which one is chosen by itself, and what says which one ran."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actum import Outcome
from common.made_tools import MadeTools, cli_adapter, made_tools

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def made() -> Iterator[MadeTools]:
    with made_tools() as opened:
        statuses = ("active", "deprecated", "experimental")
        opened.add("several", [cli_adapter(f"ADP-{status}", status=status) for status in statuses])
        opened.add("new", [cli_adapter("ADP-new", status="experimental")])
        opened.add("old", [cli_adapter("ADP-old", status="deprecated")])
        yield opened


@pytest.mark.req("000-127")
@pytest.mark.parametrize("status", ["active", "deprecated", "experimental"])
def test_result_document_evidence_and_receipt_say_the_status(made: MadeTools, status: str) -> None:
    result = made.rt.exec("several", stdin="true", adapter_id=f"ADP-{status}").check()
    assert result.adapter_status == status
    assert result.document()["adapter_status"] == status
    assert made.evidence(result)["adapter_status"] == status
    assert made.predicate(result)["adapter"]["status"] == status
    assert made.broken() == []


@pytest.mark.req("000-127")
def test_of_several_the_active_one_is_chosen(made: MadeTools) -> None:
    result = made.rt.exec("several", stdin="true").check()
    assert (result.adapter_id, result.adapter_status) == ("ADP-active", "active")


@pytest.mark.req("000-127")
@pytest.mark.parametrize("tool", ["new", "old"])
def test_the_only_adapter_is_not_chosen_unless_it_is_active(made: MadeTools, tool: str) -> None:
    refused = made.rt.exec(tool, stdin="true")
    assert (refused.outcome, refused.reason_codes) == (Outcome.REJECTED, ("ADAPTER_AMBIGUOUS",))
    # The control: by its id it runs.
    made.rt.exec(tool, stdin="true", adapter_id=f"ADP-{tool}").check()


def test_a_repeated_request_still_says_the_status(made: MadeTools) -> None:
    words = {"execution_id": "4f3b2a10-0000-4000-8000-000000000127"}
    first = made.rt.exec("several", stdin="true", adapter_id="ADP-deprecated", set=words).check()
    again = made.rt.exec("several", stdin="true", adapter_id="ADP-deprecated", set=words)
    assert (again.replayed, again.adapter_status) == (True, first.adapter_status)
