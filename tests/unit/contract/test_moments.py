"""Moments are written as the standard library writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from actum.contract.timestamps import iso_text, utc_text
from actum.evidence.records.trace import rfc3339

ZONES = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-3)), UTC]
)


@given(
    moments=st.lists(
        st.datetimes(
            datetime(1970, 1, 3),  # noqa: DTZ001 -- its zone is drawn beside it
            datetime(9999, 12, 29),  # noqa: DTZ001
            timezones=ZONES,
        ),
        max_size=4,
    )
)
def test_moments_are_written_as_the_standard_library_writes_them(moments: list[datetime]) -> None:
    for moment in moments:
        nearly = moment + timedelta(microseconds=1)
        for each in (moment, nearly, moment.replace(microsecond=0), moment):
            assert iso_text(each) == each.isoformat()
            text = each.astimezone(UTC).isoformat(timespec="milliseconds")
            assert utc_text(each) == rfc3339(each) == text.removesuffix("+00:00") + "Z"


def test_a_moment_without_a_zone_is_written_as_it_is() -> None:
    moment = datetime(2026, 1, 16, 9, 30)  # noqa: DTZ001
    assert iso_text(moment) == moment.isoformat()
