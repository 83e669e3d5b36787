"""What this version does not do is refused by name, never done halfway."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actum import Outcome, Runtime
from actum.adapters.kinds import check_supported
from actum.registry.change import approve
from actum.registry.model import Fallback


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


def test_retries_are_refused_until_they_exist() -> None:
    with Runtime.temporary(pool=False) as rt:
        (file,) = (rt.settings.root / "tools" / "shell" / "adapters").iterdir()
        file.write_text(file.read_text().replace("max_attempts: 1", "max_attempts: 3"))
        approve(rt.settings.root, rt.keyring, "shell", by="b", evidence="e", date="2026-01-01")
        result = rt.exec("shell", stdin="true")
        assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("RETRY_UNSUPPORTED",))


def test_a_fallback_is_refused_until_there_is_one() -> None:
    with Runtime.temporary(pool=False) as rt:
        adapter = rt.rooms.registry.entry("shell", None).adapter
        fallback = Fallback(adapter_id="ADP-099", condition="on_error")
        (violation,) = check_supported(replace(adapter, fallback=fallback))
        assert (violation.code, violation.field) == ("RETRY_UNSUPPORTED", "errors.fallback")
        assert check_supported(adapter) == ()
