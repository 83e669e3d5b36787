"""The review gate: what it asks, what it says, and that nothing is registered without its yes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from pure_house import PureHouse

from actum.contract.outcome import ActionStatus
from actum.executors.verdicts import Review, contract_sha256

GOOD = '''"""Doubles a number."""


class Double:
    executor_id = "double"
    version = "1.0.0"
    capabilities = ["MATH"]
    limits = {
        "timeout_ms": 20000,
        "max_payload_bytes": 1000,
        "max_depth": 3,
        "max_list_items": 5,
    }

    def execute(self, req):
        return None if "n" not in req.payload else req.payload["n"] * 2
'''


def _review(house: PureHouse, text: str, file: str = "double.py") -> Review:
    path = house.root / "executors" / file
    path.write_text(text)
    return house.plane.review(path, by="user:reviewer")


def _objections(review: Review) -> str:
    return "\n".join(text for check in review.checks for text in check.objections)


@pytest.mark.req("001-1", "001-14", "001-16", "001-17", "001-75")
def test_an_executor_that_keeps_the_contract_is_approved_and_can_be_called(
    own_house: PureHouse,
) -> None:
    review = _review(own_house, GOOD)
    assert review.approved, _objections(review)
    result = own_house.act("double", {"n": 21})
    assert (result.status, own_house.plane.value(result)) == (ActionStatus.SUCCESS, 42)
    assert own_house.act("double").output_digest is None


BROKEN = {
    "no id": ('    executor_id = "double"\n', "", "executor_id is missing", "001-69"),
    "id not text": ('"double"', "7", "executor_id is int, not text", "001-3"),
    "id bytes": ('"double"', 'b"double"', "executor_id is bytes, not text", "001-3"),
    "id list": ('"double"', '["double"]', "executor_id is list, not text", "001-3"),
    "id none": ('"double"', "None", "executor_id is NoneType, not text", "001-3"),
    "id upper case": ('"double"', '"Double"', "lower case", "001-5"),
    "id with dash": ('"double"', '"dou-ble"', "lower case", "001-5"),
    "id two underscores": ('"double"', '"dou__ble"', "lower case", "001-5"),
    "id starts with digit": ('"double"', '"2double"', "lower case", "001-5"),
    "no version": ('    version = "1.0.0"\n', "", "version is missing", "001-70"),
    "version v1": ('"1.0.0"', '"v1"', "must be X.Y.Z", "001-6"),
    "version short": ('"1.0.0"', '"1.0"', "must be X.Y.Z", "001-30"),
    "version candidate": ('"1.0.0"', '"1.0.0-rc1"', "must be X.Y.Z", "001-6"),
    "version number": ('"1.0.0"', "1", "version is int, not text", "001-65"),
    "version leading zero": ('"1.0.0"', '"1.00.0"', "must be X.Y.Z", "001-30"),
    "no capabilities": ('    capabilities = ["MATH"]\n', "", "are missing", "001-71"),
    "capabilities text": ('["MATH"]', '"MATH"', "is str, not a list", "001-7"),
    "capabilities tuple": ('["MATH"]', '("MATH",)', "is tuple, not a list", "001-65"),
    "capability number": ('["MATH"]', "[1]", "capabilities[0] is not text", "001-7"),
    "capability lower case": ('["MATH"]', '["Math"]', "must be upper case", "001-8"),
    "no limits": ("    limits = {", "    bounds = {", "limits are missing", "001-72"),
    "limit missing": ('        "max_depth": 3,\n', "", "limits.max_depth is missing", "001-9"),
    "limit text": ("20000", '"20000"', "limits.timeout_ms is str", "001-9"),
    "limit truth": ("20000", "True", "limits.timeout_ms is bool", "001-10"),
    "limit fraction": ("20000", "0.5", "limits.timeout_ms is float", "001-10"),
    "limit zero": ("20000", "0", "limits.timeout_ms is 0", "001-10"),
    "no execute": ("def execute", "def run", "execute(req) is missing", "001-14"),
    "execute wants more": ("(self, req)", "(self, req, more)", "execute(req)", "001-14"),
    "execute wants nothing": ("(self, req)", "(self)", "execute(req)", "001-14"),
    "renamed attribute": ("executor_id =", "executor_name =", "executor_id is missing", "001-65"),
    "no docstring": ('"""Doubles a number."""', "", "no docstring", "001-75"),
    "two classes": (
        "class Double",
        "class Other:\n    execute = 1\n\n\nclass Double",
        "exactly one",
        "001-1",
    ),
    "no class": ("class Double", "class _Double", "exactly one", "001-1"),
    "no python": ("class Double", "klass Double", "not Python", "001-1"),
}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param(*case[:3], id=name, marks=pytest.mark.req("001-1", case[3]))
        for name, case in BROKEN.items()
    ],
)
def test_an_executor_that_breaks_the_contract_is_rejected_and_not_registered(
    house: PureHouse, old: str, new: str, said: str
) -> None:
    assert old in GOOD
    review = _review(house, GOOD.replace(old, new, 1))
    assert not review.approved
    assert said in _objections(review)
    assert "double" not in house.plane.registry.executors
    result = house.act("double", {"n": 1})
    assert (result.status, result.reason_codes) == (ActionStatus.BLOCKED, ("ACTION_UNKNOWN",))
    refused = {each.file: each.code for each in house.plane.registry.not_registered}
    assert refused["double.py"] == "EXECUTOR_REJECTED"


@pytest.mark.req("001-7", "001-71")
def test_capabilities_may_be_empty(own_house: PureHouse) -> None:
    assert _review(own_house, GOOD.replace('["MATH"]', "[]")).approved


@pytest.mark.req("001-9", "001-64")
def test_limits_may_be_any_object_and_more_attributes_may_be_added(own_house: PureHouse) -> None:
    text = GOOD.replace("    limits = {", "    owner = 'us'\n    note = {'a': [1]}\n    limits = {")
    text = text.replace("limits = {", "limits = Limits(**{").replace("    }\n", "    })\n")
    text = text.replace(
        "class Double",
        "from dataclasses import dataclass\n\n\n@dataclass(frozen=True)\nclass Limits:\n"
        "    timeout_ms: int\n    max_payload_bytes: int\n    max_depth: int\n"
        "    max_list_items: int\n\n\nclass Double",
    )
    review = _review(own_house, text)
    assert review.approved, _objections(review)
    assert own_house.plane.value(own_house.act("double", {"n": 2})) == 4


@pytest.mark.req("001-4", "001-69")
def test_an_id_that_another_file_has_is_refused(own_house: PureHouse) -> None:
    assert _review(own_house, GOOD).approved
    second = _review(own_house, GOOD.replace("1.0.0", "2.0.0"), "copy.py")
    assert "executor_id double is taken by executors/double.py" in _objections(second)
    shipped = _review(own_house, GOOD.replace('"double"', '"noop"'), "mine.py")
    assert "executor_id noop is taken by shipped" in _objections(shipped)


@pytest.mark.req("001-4")
def test_two_approved_files_of_one_id_do_not_both_register(own_house: PureHouse) -> None:
    source = GOOD.encode()
    own_house.put("double", source)
    own_house.put("twice", source + b"\n")
    (own_house.root / "executors" / "twice.py").rename(own_house.root / "executors" / "zz.py")
    # The second approval is of other bytes that claim the same id.
    own_house.plane.verdicts.record(
        _as_id(own_house.plane.verdicts.about(_sha(source + b"\n")), "double")
    )
    own_house.reopen()
    codes = {each.file: each.code for each in own_house.plane.registry.not_registered}
    assert codes == {"zz.py": "EXECUTOR_ID_TAKEN"}


def _sha(source: bytes) -> str:
    from actum.contract.canonical import sha256_bytes

    return sha256_bytes(source)


def _as_id(review: Review | None, executor_id: str) -> Review:
    from dataclasses import replace

    assert review is not None and review.declared is not None
    return replace(review, declared=replace(review.declared, executor_id=executor_id))


@pytest.mark.req("001-66")
def test_a_file_keeps_the_id_under_which_it_was_approved(own_house: PureHouse) -> None:
    assert _review(own_house, GOOD).approved
    renamed = _review(own_house, GOOD.replace('"double"', '"doubled"'))
    assert "it was approved as double; an id never changes" in _objections(renamed)


def test_a_file_may_have_the_name_of_a_shipped_one(own_house: PureHouse) -> None:
    review = _review(own_house, GOOD, "noop.py")
    assert review.approved, _objections(review)
    assert own_house.plane.value(own_house.act("double", {"n": 4})) == 8


@pytest.mark.req("001-31", "001-70")
def test_other_code_needs_another_version(own_house: PureHouse) -> None:
    assert _review(own_house, GOOD).approved
    changed = GOOD.replace("* 2", "+ 2")
    assert "version 1.0.0 was approved with other code" in _objections(_review(own_house, changed))
    assert _review(own_house, changed.replace("1.0.0", "1.0.1")).approved


@pytest.mark.req("001-75")
def test_without_a_verdict_nothing_is_registered(own_house: PureHouse) -> None:
    (own_house.root / "executors" / "double.py").write_text(GOOD)
    own_house.reopen()
    assert own_house.act("double", {"n": 1}).reason_codes == ("ACTION_UNKNOWN",)
    (refused,) = own_house.plane.registry.not_registered
    assert refused.code == "EXECUTOR_NOT_REVIEWED"


@pytest.mark.req("001-75")
def test_a_verdict_is_about_exact_bytes(own_house: PureHouse) -> None:
    assert _review(own_house, GOOD).approved
    path = own_house.root / "executors" / "double.py"
    path.write_text(GOOD.replace("* 2", "* 3"))
    own_house.reopen()
    assert "double" not in own_house.plane.registry.executors
    path.write_text(GOOD)
    own_house.reopen()
    assert own_house.plane.value(own_house.act("double", {"n": 1})) == 2


@pytest.mark.req("001-75")
def test_a_verdict_that_is_not_signed_by_a_trusted_key_is_no_verdict(own_house: PureHouse) -> None:
    assert _review(own_house, GOOD).approved
    connection = sqlite3.connect(own_house.database.path)
    (sha, envelope) = connection.execute(
        "SELECT source_sha256, envelope FROM executor_reviews WHERE executor_id = 'double'"
    ).fetchone()
    forged = json.loads(envelope)
    forged["signatures"][0]["sig"] = "AAAA" * 21 + "AA=="
    connection.execute(
        "INSERT INTO executor_reviews (executor_id, source_sha256, approved, envelope)"
        " VALUES ('double', ?, 1, ?)",
        (sha, json.dumps(forged)),
    )
    connection.commit()
    connection.close()
    own_house.reopen()
    assert "double" not in own_house.plane.registry.executors


@pytest.mark.req("001-75")
def test_a_verdict_names_the_contract_and_is_worth_nothing_under_another(
    own_house: PureHouse,
) -> None:
    from dataclasses import replace

    review = _review(own_house, GOOD)
    assert review.document()["contract"] == {"name": "CONTRACT.md", "sha256": contract_sha256()}
    own_house.plane.verdicts.record(replace(review, contract="0" * 64))
    own_house.reopen()
    (refused,) = own_house.plane.registry.not_registered
    assert refused.code == "EXECUTOR_REVIEW_STALE"


def test_every_verdict_is_on_record_also_a_no(own_house: PureHouse) -> None:
    _review(own_house, GOOD.replace("1.0.0", "one"))
    _review(own_house, GOOD)
    records = [json.loads(row[0]) for row in own_house.database.rows("SELECT record FROM audit")]
    mine = [each for each in records if each.get("by") == "user:reviewer"]
    assert [each["approved"] for each in mine] == [False, True]
    assert mine[1]["executor_id"] == "double"


PROBED = {
    "hash seed": ('[*{"a", "b", "c", "d", "e"}]', "different answers", "001-18"),
    "addresses": ("id(req)", "different answers", "001-18"),
    "trace id": ("req.trace_id", "different answers", "001-18"),
    "time of the request": ("str(req.ts_utc)", "different answers", "001-25"),
    "time zone": ("time.localtime(0).tm_hour", "different answers", "001-25"),
    "sometimes nothing": ("None if hash('a') % 2 else 1", "different answers", "001-19"),
    "file": ('open("/etc/passwd").read()', "something forbidden", "001-73"),
    "clock": ("time.time()", "something forbidden", "001-73"),
    "own attributes": ("self.capabilities.append('X')", "changed what it declared", "001-2"),
    "endless": ("[1 for _ in iter(int, 1)]", "within its own timeout_ms", "001-73"),
}


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        pytest.param(*case[:2], id=name, marks=pytest.mark.req("001-73", case[2]))
        for name, case in PROBED.items()
    ],
)
def test_what_is_not_pure_shows_when_it_is_tried(
    house: PureHouse, expression: str, said: str
) -> None:
    text = GOOD.replace("class Double", "import time\n\n\nclass Double")
    text = text.replace("return None if", f"return {expression}  # None if")
    if "timeout_ms" in said:  # the others have time enough on a busy machine
        text = text.replace("20000", "200")
    review = _review(house, text, "probed.py")
    assert not review.approved
    assert said in _objections(review)


@pytest.mark.req("001-73")
def test_a_pure_executor_is_compared_in_several_worlds(own_house: PureHouse) -> None:
    review = _review(own_house, GOOD)
    (check,) = (each for each in review.checks if each.name == "it is deterministic")
    assert check.remark == "18 runs compared, 0 samples of its own"


_SWALLOWING = {
    "leaving finally": """
        try:
            return req.payload["n"] * 2
        finally:
            return ""
""",
    "blanket except": """
        E = Exception
        try:
            return req.payload["n"] * 2
        except E:
            return ""
""",
    "swallowing exit": """
        class Quiet:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                return True

        with Quiet():
            return req.payload["n"] * 2
""",
}


@pytest.mark.req("001-29")
@pytest.mark.parametrize("rule", _SWALLOWING)
def test_an_executor_that_swallows_any_exception_is_rejected(
    own_house: PureHouse, rule: str
) -> None:
    head, _, _ = GOOD.partition("        return")
    review = _review(own_house, head + _SWALLOWING[rule].lstrip("\n"))
    assert not review.approved
    assert f": {rule}: " in _objections(review)
    assert own_house.act("double", {"n": 1}).reason_codes == ("ACTION_UNKNOWN",)
    # The control: the same code with a named exception, without the return, or with False.
    sound = _SWALLOWING[rule].replace("E = Exception", "E = KeyError").replace("True", "False")
    sound = sound.replace('finally:\n            return ""', "finally:\n            done = True")
    again = _review(own_house, head + sound.lstrip("\n"))
    assert again.approved, _objections(again)


def _remark(review: Review) -> str:
    (check,) = (each for each in review.checks if "returns None" in each.name)
    return check.remark


@pytest.mark.req("001-74")
def test_none_is_returned_where_it_was_promised(own_house: PureHouse) -> None:
    # Without a sample the gate has not asked, and says so.
    assert _remark(_review(own_house, GOOD)) == "not asked: no sample promises None"
    promise = '    samples = [{"payload": {}, "output": None}]\n\n    def execute'
    asked = _review(own_house, GOOD.replace("    def execute", promise).replace("1.0.0", "1.0.2"))
    assert asked.approved, _objections(asked)
    assert _remark(asked) == "asked by 1 of its samples"
    broken = GOOD.replace("    def execute", promise).replace("None if", "'' if")
    review = _review(own_house, broken.replace("1.0.0", "1.0.3"))
    assert "samples[0]: it did not return None" in _objections(review)


def test_samples_that_are_none_are_named(own_house: PureHouse) -> None:
    text = GOOD.replace("    def execute", "    samples = [3, {'payload': 1}]\n\n    def execute")
    said = _objections(_review(own_house, text))
    assert "samples[0] must be" in said and "samples[1] must be" in said


@pytest.mark.req("001-42")
def test_an_executor_that_gives_a_secret_away_is_rejected(own_house: PureHouse) -> None:
    sample = '    samples = [{"payload": {"token": "s3cr3t-value"}}]\n\n    def execute'
    text = GOOD.replace("    def execute", sample).replace("None if", "req.payload.get('token') or")
    text = text.replace('"n" not in req.payload else req.payload["n"] * 2', "None")
    assert "a secret of the payload is in the output" in _objections(_review(own_house, text))


def test_a_huge_file_is_not_even_read_to_its_end(own_house: PureHouse, tmp_path: Path) -> None:
    review = _review(own_house, GOOD + "#" * 400_000)
    assert not review.approved
    assert "at most 262144 are read" in _objections(review)


@pytest.mark.parametrize(
    "body",
    [
        "import os\nos._exit(0)",
        "while True:\n    pass",
        "raise SystemExit",
        "1/0",
        "x = bytearray(10**10)",
    ],
)
def test_a_module_that_misbehaves_when_loaded_is_rejected(house: PureHouse, body: str) -> None:
    review = _review(house, f"{GOOD}\n\n{body}\n", "misbehaving.py")
    assert not review.approved
    assert "cannot be loaded" in _objections(review)
