"""What this version does not do is refused by name, never done halfway."""

from __future__ import annotations

import pytest

from actum import Outcome, Runtime


def test_a_determinism_level_out_of_reach_is_refused() -> None:
    with Runtime.temporary(pool=False) as rt:
        result = rt.exec("shell", stdin="true", set={"determinism": "D3"})
        assert (result.outcome, result.reason_codes) == (
            Outcome.REJECTED,
            ("DETERMINISM_UNSUPPORTED",),
        )


@pytest.mark.sandbox
def test_level_d1_pins_what_it_says() -> None:
    with Runtime.temporary(pool=False) as rt:
        script = "echo $PYTHONHASHSEED $SOURCE_DATE_EPOCH $TZ"
        result = rt.exec("shell", stdin=script, set={"determinism": "D1"}).check()
        assert result.result is not None
        seed, epoch, zone = result.result.stdout.split()
        assert (seed, epoch.isdigit(), zone) == ("0", True, "UTC")
