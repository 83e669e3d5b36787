"""Sandboxes of one spawner have mounts in common. What one does to them, the next must not see."""

from __future__ import annotations

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_PLACES = (
    "/ /dev /dev/stdout /dev/null /etc /etc/passwd /etc/ssl /etc/actum/snippet.py /usr /run "
    "/var /artifacts"
)
#: An ordinary user's tools own what the spawner made, so permission alone keeps nothing.
_CHANGES = {
    "mode": "chmod 000",
    "time": "touch -hd 2001-01-01",
    "attribute": 'python3 -c \'import os, sys; os.setxattr(sys.argv[1], "user.x", b"x")\'',
    "name": "sh -c 'mv $0 $0.x'",
}
_SEEN = (
    "stat -c '%n %a %u %g %F' $places; stat -c '%n %Y' /dev /etc /dev/stdout;"
    " ls -A / /dev /etc /run /var;"
    " python3 -c 'import os, sys; print([os.listxattr(each) for each in sys.argv[1:]])' $places"
)


@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_to_what_all_sandboxes_have_is_not_seen_by_the_next(
    jail: Jail, change: str
) -> None:
    begin = f"places='{_PLACES}';"
    before = jail.said(jail.sh(f"{begin} {_SEEN}"))
    jail.sh(f"{begin} for each in $places; do {_CHANGES[change]} $each 2>/dev/null; done; true")
    after = jail.said(jail.sh(f"{begin} {_SEEN}"))
    assert after == before
    assert jail.said(jail.sh("echo x > /dev/null && echo y > /dev/stdout")) == "y"


def test_the_changes_work_where_nothing_forbids_them(jail: Jail) -> None:
    for change in _CHANGES.values():
        assert jail.outside(f"touch here; {change} here && echo done; rm -f here*") == "done"
