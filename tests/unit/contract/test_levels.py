from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.levels import (
    SYSTEM_PATHS,
    FilesystemGrant,
    NetworkGrant,
    absolute,
    expand_filesystem,
    expand_network,
    host_covers,
    is_within,
    narrow,
    narrow_network,
)
from actum.contract.model import (
    FilesystemLevel,
    FilesystemRequest,
    NetworkLevel,
    NetworkRequest,
)

from .asking import contract

ROOT, HERE, DEPENDENCIES = "/repo", "/repo/app", ("/opt/deps", "/repo/vendor")


def grant(level, **places):
    places = {"repo_root": ROOT, "working_directory": HERE, "dependencies": DEPENDENCIES} | places
    return expand_filesystem(FilesystemLevel(level), **places)


@pytest.mark.parametrize(
    ("path", "parent", "inside"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/a/", "/a", True),
        ("/a/./b", "/a", True),
        ("/anything", "/", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a/../b", "/a", False),
        ("/a/b", "/a/..", False),
        ("/", "/a", False),
    ],
)
def test_being_within_goes_by_components_and_never_through_dot_dot(path, parent, inside):
    assert is_within(path, parent) is inside


def test_joining_keeps_dot_dot_visible():
    assert absolute("../x", "/a/b") == "/a/b/../x"
    assert absolute("./x//y/", "/a") == "/a/x/y"
    assert absolute("/", "/a") == "/"


@pytest.mark.req("000-49")
@pytest.mark.parametrize(
    ("level", "read", "write"),
    [
        ("minimal", ("/repo/app",), ()),
        ("standard", ("/repo",), ("/repo/app",)),
        ("extended", ("/opt/deps", "/repo"), ("/repo/app",)),
        ("elevated", ("/etc", "/opt", "/repo", "/usr", "/var"), ()),
    ],
)
def test_each_level_stands_for_fixed_lists(level, read, write):
    expanded = grant(level)
    assert (expanded.read, expanded.write) == (read, write)
    assert grant(level, dependencies=DEPENDENCIES[::-1]) == expanded


def test_extended_adds_the_output_directory_it_is_given():
    assert grant("extended", output_directory="/out").write == ("/out", "/repo/app")


@pytest.mark.parametrize("level", FilesystemLevel)
@pytest.mark.parametrize("outside", ["/", "/root", "/repository", "/repo/../root", "/srv"])
def test_a_working_directory_outside_the_repository_earns_nothing(level, outside):
    expanded = grant(level, working_directory=outside)
    assert not any(is_within(outside, path) for path in (*expanded.read, *expanded.write))
    assert outside not in (*expanded.read, *expanded.write)
    _, violations = narrow(expanded, FilesystemRequest(), outside)
    assert [violation.field for violation in violations] == ["inputs.working_directory"]


def test_without_lists_of_its_own_a_contract_gets_the_level():
    expanded = grant("standard")
    assert narrow(expanded, FilesystemRequest(), HERE) == (expanded, ())


def test_lists_narrow_a_level_and_are_taken_from_the_working_directory():
    request = FilesystemRequest(read=("src", "/repo/lib", "src/inner"), write=(".",), deny=("key",))
    narrowed, violations = narrow(grant("standard"), request, HERE)
    assert violations == ()
    assert narrowed == FilesystemGrant(
        read=("/repo/app/src", "/repo/lib"), write=("/repo/app",), deny=("/repo/app/key",)
    )


def test_a_read_list_alone_also_narrows_what_may_be_written():
    narrowed, _ = narrow(grant("standard"), FilesystemRequest(read=("src", "/repo/lib")), HERE)
    assert narrowed.write == ("/repo/app/src",)
    narrowed, _ = narrow(grant("standard"), FilesystemRequest(read=("/repo",)), HERE)
    assert narrowed.write == ("/repo/app",)
    narrowed, _ = narrow(grant("standard"), FilesystemRequest(read=()), HERE)
    assert (narrowed.read, narrowed.write) == ((), ())


@pytest.mark.req("000-49")
def test_what_lies_outside_the_level_is_named_each_time_and_not_granted():
    request = FilesystemRequest(
        read=("src", "/etc", "../../x"), write=("/repo/lib", "/repo/app/../lib", "ok")
    )
    narrowed, violations = narrow(grant("standard"), request, HERE)
    assert [(one.code, one.field, one.value) for one in violations] == [
        ("SCOPE_EXCEEDED", "sandbox.filesystem.read[1]", "/etc"),
        ("SCOPE_EXCEEDED", "sandbox.filesystem.read[2]", "../../x"),
        ("SCOPE_EXCEEDED", "sandbox.filesystem.write[0]", "/repo/lib"),
        ("SCOPE_EXCEEDED", "sandbox.filesystem.write[1]", "/repo/app/../lib"),
    ]
    assert (narrowed.read, narrowed.write) == (("/repo/app/src",), ("/repo/app/ok",))


def test_minimal_refuses_every_write():
    _, violations = narrow(grant("minimal"), FilesystemRequest(write=(".",)), HERE)
    assert [one.field for one in violations] == ["sandbox.filesystem.write[0]"]


def test_elevated_writes_only_what_is_specifically_listed():
    elevated = grant("elevated")
    assert set(SYSTEM_PATHS) <= set(elevated.read)
    assert narrow(elevated, FilesystemRequest(), HERE)[0].write == ()
    listed = ("/srv/data", "/etc/app", "out")
    narrowed, violations = narrow(elevated, FilesystemRequest(write=listed), HERE)
    assert (narrowed.write, violations) == (("/etc/app", "/repo/app/out", "/srv/data"), ())
    for never in ("/", "/proc/sys", "/sys", "/dev/sda", "/srv/../root"):
        narrowed, violations = narrow(elevated, FilesystemRequest(write=(never,)), HERE)
        assert (narrowed.write, len(violations)) == ((), 1)


def test_a_narrowed_grant_cannot_be_widened_by_a_second_list():
    narrowed, _ = narrow(grant("elevated"), FilesystemRequest(write=("/srv/a",)), HERE)
    again, violations = narrow(narrowed, FilesystemRequest(write=("/srv/b",)), HERE)
    assert (again.write, len(violations)) == ((), 1)


names = st.sampled_from(["repo", "app", "src", "etc", "opt", "deps", "..", ".", "repository"])
paths = st.builds(
    lambda lead, parts: lead + "/".join(parts),
    st.sampled_from(["/", "/repo/", ""]),
    st.lists(names),
)
lists = st.none() | st.lists(paths, max_size=4).map(tuple)


@pytest.mark.req("000-49")
@given(level=st.sampled_from(FilesystemLevel), read=lists, write=lists, deny=lists, probe=paths)
def test_no_list_ever_widens_a_level(level, read, write, deny, probe):
    expanded = grant(level)
    request = FilesystemRequest(read=read, write=write, deny=deny or ())
    narrowed, _ = narrow(expanded, request, HERE)
    where = absolute(probe, HERE)

    def within(parents):
        return any(is_within(where, parent) for parent in parents)

    if within(narrowed.write):
        assert within((*expanded.write, *(expanded.write_if_listed if write else ())))
    if within(narrowed.read):
        assert within((*expanded.read, *expanded.write))
    if read is not None and write is None and within(narrowed.write):
        assert within(narrowed.read)


def expand(level):
    return expand_network(
        NetworkLevel(level),
        registry_hosts=("pkg.internal", "mirror.internal"),
        api_hosts=("api.example.com", "*.svc.example.com:443"),
    )


@pytest.mark.parametrize(
    ("level", "enabled", "allow"),
    [
        ("offline", False, ()),
        ("registry", True, ("mirror.internal", "pkg.internal")),
        ("api", True, ("*.svc.example.com:443", "api.example.com")),
        ("open", True, ("*",)),
    ],
)
def test_each_network_level_stands_for_fixed_hosts(level, enabled, allow):
    assert expand(level) == NetworkGrant(enabled=enabled, allow=allow)


@pytest.mark.req("000-51")
def test_a_contract_that_says_nothing_about_network_is_offline():
    request = contract().sandbox.network
    assert (request.level, request.enabled) == (None, None)
    narrowed, violations = narrow_network(expand("offline"), request)
    assert (narrowed, violations) == (NetworkGrant(enabled=False, allow=()), ())


def test_a_host_that_the_level_has_is_granted_alone():
    request = NetworkRequest(enabled=True, allow=("api.example.com:443",))
    narrowed, violations = narrow_network(expand("api"), request)
    assert (narrowed.allow, violations) == (("api.example.com:443",), ())


def test_naming_hosts_without_switching_the_network_on_is_said_not_ignored():
    request = NetworkRequest(allow=("api.example.com",))
    narrowed, violations = narrow_network(expand("offline"), request)
    assert not narrowed.enabled
    assert [one.field for one in violations] == ["sandbox.network.allow[0]"]


def test_hosts_beyond_the_level_are_violations_and_are_not_granted():
    request = NetworkRequest(
        enabled=True, allow=("api.example.com", "evil.example.com"), deny=("x.example.com",)
    )
    narrowed, violations = narrow_network(expand("api"), request)
    assert narrowed == NetworkGrant(
        enabled=True, allow=("api.example.com",), deny=("x.example.com",)
    )
    assert [(one.code, one.field, one.value) for one in violations] == [
        ("SCOPE_EXCEEDED", "sandbox.network.allow[1]", "evil.example.com")
    ]


def test_an_offline_level_cannot_be_switched_on():
    narrowed, violations = narrow_network(expand("offline"), NetworkRequest(enabled=True))
    assert not narrowed.enabled
    assert [one.field for one in violations] == ["sandbox.network.enabled"]


@pytest.mark.parametrize("level", NetworkLevel)
def test_switching_off_wins_over_every_level(level):
    request = NetworkRequest(enabled=False, allow=("api.example.com",))
    assert narrow_network(expand(level), request) == (NetworkGrant(enabled=False, allow=()), ())


@pytest.mark.parametrize(
    ("granted", "asked", "covers"),
    [
        ("a.b", "a.b", True),
        ("A.b", "a.B.", True),
        ("a.b", "a.b:443", True),
        ("a.b:443", "a.b:443", True),
        ("a.b:443", "a.b", False),
        ("a.b:443", "a.b:80", False),
        ("a.b", "x.a.b", False),
        ("*.a.b", "x.a.b", True),
        ("*.a.b", "x.y.a.b:1", True),
        ("*.a.b", "*.y.a.b", True),
        ("*.a.b", "a.b", False),
        ("*.a.b", "xa.b", False),
        ("a.b", "*.a.b", False),
        ("*", "anything:1", True),
        ("[::1]:80", "[::1]:80", True),
        ("::1", "[::1]:80", True),
        ("[::1]:80", "::1", False),
    ],
)
def test_a_granted_host_covers_itself_its_ports_and_names_below_a_star(granted, asked, covers):
    assert host_covers(granted, asked) is covers
