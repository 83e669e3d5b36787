from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.adapters.cli import build_call
from actum.contract.model import Determinism
from actum.policy.environment import approved_names, baseline, is_never_passed, tool_environment

from .factories import make_cli, make_contract, make_entry

BASE = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "ACTUM_ARTIFACTS": "/artifacts",
}


def environment(
    given: dict[str, str],
    approved: tuple[str, ...],
    determinism: Determinism = Determinism.D0,
    path: tuple[str, ...] = (),
) -> dict[str, str]:
    call = build_call(make_contract(arguments=("x",), environment=given), make_entry())
    return tool_environment(call, approved, determinism=determinism, path=path)


@pytest.mark.req("000-7")
def test_a_tool_sees_exactly_the_baseline_and_the_approved_values() -> None:
    assert environment({}, ()) == BASE
    assert environment({"A": "1", "B": "2"}, ("A",)) == BASE | {"A": "1"}


def test_the_host_environment_has_no_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "LANG", "TZ", "HOME", "SECRET", "A"):
        monkeypatch.setenv(name, "host")
    assert environment({}, ("A", "SECRET", "LANG")) == BASE


def test_path_is_the_minimal_or_the_scoped_one_and_never_the_callers() -> None:
    assert environment({"PATH": "/evil"}, ("PATH",))["PATH"] == BASE["PATH"]
    scoped = environment({"PATH": "/evil"}, ("PATH",), path=("/opt/a", "/opt/b"))
    assert scoped["PATH"] == "/opt/a:/opt/b"


def test_the_callers_locale_and_zone_win_if_approved() -> None:
    found = environment({"LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo"}, ("LANG", "TZ"))
    assert found == BASE | {"LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo"}


@pytest.mark.parametrize("level", [Determinism.D1, Determinism.D2, Determinism.D3])
def test_from_d1_on_the_time_of_archives_is_fixed(level: Determinism) -> None:
    assert baseline(level, ()) == BASE | {"SOURCE_DATE_EPOCH": "315532800"}
    assert baseline(Determinism.D0, ()) == BASE


@given(
    given=st.dictionaries(
        st.sampled_from(["PATH", "HOME", "TMPDIR", "ACTUM_X", "LD_PRELOAD", "ENV", "A", "TZ"]),
        st.text(max_size=5),
    )
)
def test_what_is_ours_stays_ours_whatever_is_given_and_approved(given: dict[str, str]) -> None:
    found = environment(given, tuple(given))
    assert {name: found[name] for name in ("PATH", "HOME", "TMPDIR", "ACTUM_ARTIFACTS")} == {
        name: BASE[name] for name in ("PATH", "HOME", "TMPDIR", "ACTUM_ARTIFACTS")
    }
    assert set(found) <= {*BASE, "A"}


def test_approved_names_are_the_tools_and_the_adapters_without_the_dangerous() -> None:
    entry = make_entry(
        cli=make_cli(env_mapping={"a": "Z_MAPPED", "b": "LD_PRELOAD"}),
        environment=("TERM", "LANG", "PATH", "PYTHONPATH"),
    )
    assert approved_names(entry) == ("LANG", "TERM", "Z_MAPPED")


@pytest.mark.parametrize("name", ["LANG", "TERM", "PYTHONHASHSEED", "ENVIRONMENT", "LDFLAGS"])
def test_ordinary_names_are_not_dangerous(name: str) -> None:
    assert not is_never_passed(name)
