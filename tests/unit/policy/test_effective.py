from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.call import EffectivePolicy, NetworkPolicy
from actum.contract.levels import expand_filesystem
from actum.contract.limits import CPU_CORES, MAX_CHILDREN, MEMORY_MB, TIMEOUT_MS, Limits
from actum.contract.model import (
    ExpectedOutputs,
    FilesystemLevel,
    FilesystemRequest,
    NetworkLevel,
    NetworkRequest,
    ProcessRequest,
    RunnerKind,
    SandboxRequest,
)
from actum.contract.package_registries import Registries
from actum.errors import Violation
from actum.policy.effective import PolicySettings, effective_policy
from actum.policy.gates import ApprovalNeeded, Granted, imagined
from actum.policy.order import wider
from actum.registry.model import Entry, SandboxOverride

from .factories import make_contract, make_entry, make_permissions, make_scope

REPO = "/no-such-place/repo"
WORK = f"{REPO}/work"
SETTINGS = PolicySettings(
    repo_root=REPO,
    home=f"{REPO}/.actum",
    dependencies=("/no-such-place/deps",),
    registries=lambda: Registries(hosts=("packages.test",)),
)


@dataclass(frozen=True)
class Decided:
    policy: EffectivePolicy
    violations: tuple[Violation, ...]
    needed: tuple[ApprovalNeeded, ...]

    @property
    def fields(self) -> list[tuple[str, str]]:
        return [(violation.code, violation.field) for violation in self.violations]


def decide(
    entry: Entry | None = None,
    settings: PolicySettings = SETTINGS,
    *,
    work: str = WORK,
    output_files: tuple[str, ...] = (),
    granted: tuple[Granted, ...] = (),
    **sandbox: Any,
) -> Decided:
    contract = make_contract(
        working_directory=work,
        sandbox=SandboxRequest(**sandbox),
        outputs=ExpectedOutputs(output_files=output_files),
    )
    return Decided(*effective_policy(contract, entry or make_entry(), settings, granted))


def online(**changes: Any) -> Entry:
    """A tool whose pin approves two hosts."""
    return make_entry(
        scope=make_scope(network=True, hosts=("api.test", "*.cdn.test")),
        permissions=make_permissions(outbound=("https",)),
        **changes,
    )


# limits


def test_a_contract_that_asks_for_nothing_gets_the_table() -> None:
    assert decide().policy == EffectivePolicy(
        runner=RunnerKind.LOCAL,
        limits=Limits(
            timeout_ms=30_000, memory_mb=512, cpu_cores=1, max_children=10, allow_fork=True
        ),
        read=(REPO,),
        write=(WORK,),
        deny=(f"{REPO}/.actum",),
        protect=(f"{WORK}/.git/config", f"{WORK}/.git/hooks"),
        network=NetworkPolicy(enabled=False, allow=(), deny=(), outbound=()),
        environment=(),
        approvals=("AG-01:pin",),
    )
    assert decide().violations == ()
    assert decide().needed == ()


@pytest.mark.req("000-119", "000-120")
def test_an_override_replaces_the_default_and_a_request_replaces_the_override() -> None:
    entry = make_entry(override=SandboxOverride(timeout_ms=600_000, memory_mb=64))
    assert decide(entry).policy.limits.timeout_ms == 600_000
    assert decide(entry).policy.limits.memory_mb == 64
    asked = decide(entry, timeout_ms=1_000, memory_mb=128).policy.limits
    assert (asked.timeout_ms, asked.memory_mb) == (1_000, 128)


@pytest.mark.req("000-119", "000-120")
@pytest.mark.parametrize(
    ("override", "field"),
    [
        (SandboxOverride(timeout_ms=600_001), "sandbox_override.timeout_ms"),
        (SandboxOverride(timeout_ms=999), "sandbox_override.timeout_ms"),
        (SandboxOverride(memory_mb=4_097), "sandbox_override.memory_mb"),
        (SandboxOverride(memory_mb=63), "sandbox_override.memory_mb"),
    ],
)
def test_an_override_outside_the_table_is_refused(override: SandboxOverride, field: str) -> None:
    assert decide(make_entry(override=override)).fields == [("LIMIT_OUT_OF_RANGE", field)]


def test_the_tools_permissions_bound_default_override_and_request() -> None:
    entry = make_entry(
        override=SandboxOverride(timeout_ms=60_000, memory_mb=1_024),
        permissions=make_permissions(max_duration_s=5, max_memory_mb=256, max_cpu_cores=2),
    )
    for limits in (
        decide(entry).policy.limits,
        decide(entry, timeout_ms=90_000, memory_mb=4_096).policy.limits,
    ):
        assert (limits.timeout_ms, limits.memory_mb, limits.cpu_cores) == (5_000, 256, 1)
    assert decide(entry, cpu_cores=4).policy.limits.cpu_cores == 2


def test_the_deadline_is_never_later_than_the_time_left() -> None:
    assert decide(settings=replace(SETTINGS, time_left_ms=700)).policy.limits.timeout_ms == 700
    over = decide(settings=replace(SETTINGS, time_left_ms=-5))
    assert over.policy.limits.timeout_ms == 0
    assert over.fields == [("NO_TIME_LEFT", "sandbox.timeout_ms")]


def test_forking_is_allowed_unless_forbidden_and_forbidding_wins_over_the_count() -> None:
    forbidden = decide(processes=ProcessRequest(max_children=5, allow_fork=False)).policy.limits
    assert (forbidden.max_children, forbidden.allow_fork, forbidden.children) == (5, False, 0)


# file system


def files(**changes: Any) -> FilesystemRequest:
    return FilesystemRequest(**changes)


@pytest.mark.req("000-49")
@pytest.mark.parametrize(
    ("level", "read", "write"),
    [
        (FilesystemLevel.MINIMAL, (WORK,), ()),
        (FilesystemLevel.STANDARD, (REPO,), (WORK,)),
        (FilesystemLevel.EXTENDED, ("/no-such-place/deps", REPO), (WORK,)),
    ],
)
def test_a_level_expands_to_fixed_lists(
    level: FilesystemLevel, read: tuple[str, ...], write: tuple[str, ...]
) -> None:
    entry = make_entry(scope=make_scope(filesystem=("/no-such-place",)))
    policy = decide(entry, filesystem=files(level=level)).policy
    assert (policy.read, policy.write) == (read, write)


@pytest.mark.req("000-49")
def test_explicit_lists_narrow_a_level_and_never_widen_it() -> None:
    narrowed = decide(filesystem=files(read=("src",), write=("src/out",)))
    assert narrowed.policy.read == (f"{WORK}/src",)
    assert narrowed.policy.write == (f"{WORK}/src/out",)
    assert narrowed.violations == ()
    wide = decide(filesystem=files(read=("/no-such-place", "src"), write=("..",)))
    assert wide.fields == [
        ("SCOPE_EXCEEDED", "sandbox.filesystem.read[0]"),
        ("SCOPE_EXCEEDED", "sandbox.filesystem.write[0]"),
    ]
    assert wide.policy.read == (f"{WORK}/src",)
    assert wide.policy.write == ()


def test_a_listed_path_is_judged_by_where_its_links_lead(tmp_path: Path) -> None:
    repo = tmp_path.resolve() / "repo"
    (repo / "work").mkdir(parents=True)
    (repo / "work" / "out").symlink_to(tmp_path)
    settings = PolicySettings(repo_root=str(repo), home=str(repo / ".actum"))
    decided = decide(
        settings=settings, work=str(repo / "work"), filesystem=files(read=(".", "out"))
    )
    assert decided.fields == [("SCOPE_EXCEEDED", "sandbox.filesystem.read[1]")]


def test_the_scope_bounds_what_a_level_grants() -> None:
    entry = make_entry(scope=make_scope(filesystem=("work/src", "lib")))
    policy = decide(entry).policy
    assert policy.read == (f"{REPO}/lib", f"{WORK}/src")
    assert policy.write == (f"{WORK}/src",)
    nothing = decide(make_entry(scope=make_scope(filesystem=()))).policy
    assert (nothing.read, nothing.write) == ((), ())


def test_asking_for_a_path_beyond_the_scope_is_a_violation() -> None:
    entry = make_entry(scope=make_scope(filesystem=("work/src",)))
    decided = decide(entry, filesystem=files(read=(".", "../lib"), write=("doc",)))
    assert decided.fields == [
        ("SCOPE_EXCEEDED", "sandbox.filesystem.read[1]"),
        ("SCOPE_EXCEEDED", "sandbox.filesystem.write[0]"),
    ]


@pytest.mark.parametrize(
    ("access", "read", "write"),
    [("write", (REPO,), (WORK,)), ("read", (REPO,), ()), ("none", (), ())],
)
def test_data_access_bounds_reading_and_writing(
    access: str, read: tuple[str, ...], write: tuple[str, ...]
) -> None:
    policy = decide(make_entry(scope=make_scope(data_access=access))).policy
    assert (policy.read, policy.write) == (read, write)


def test_permissions_bound_what_a_level_grants() -> None:
    entry = make_entry(permissions=make_permissions(read=("work",), write=()))
    assert (decide(entry).policy.read, decide(entry).policy.write) == ((WORK,), ())
    entry = make_entry(permissions=make_permissions(read=("lib",), write=("work/out",)))
    policy = decide(entry).policy
    assert policy.read == (f"{REPO}/lib", f"{WORK}/out")
    assert policy.write == (f"{WORK}/out",)


def test_deny_wins_and_always_holds_the_home() -> None:
    decided = decide(filesystem=files(read=("a", "b"), write=("a",), deny=("a", "../x")))
    assert decided.policy.deny == (f"{REPO}/.actum", f"{WORK}/a", f"{REPO}/x")
    assert decided.policy.read == (f"{WORK}/b",)
    assert decided.policy.write == ()
    assert decided.violations == ()
    at_home = decide(work=f"{REPO}/.actum/session").policy
    assert at_home.write == ()


def test_what_governs_the_project_is_never_writable() -> None:
    protect = decide(work=REPO).policy.protect
    assert protect == tuple(
        sorted(
            f"{REPO}/{name}"
            for name in (
                "actum.toml", "tools", "tools.lock", "rules", "agents", "executors",
                ".git/hooks", ".git/config",
            )
        )
    )  # fmt: skip
    inside = decide(work=f"{REPO}/tools/rg").policy
    assert (inside.write, inside.read) == ((), (REPO,))
    hooks = decide(work=f"{REPO}/.git/hooks").policy
    assert hooks.write == ()
    git = decide(work=f"{REPO}/.git").policy
    assert {f"{REPO}/.git/config", f"{REPO}/.git/hooks"} <= set(git.protect)


def test_asking_to_write_what_governs_the_project_is_a_violation() -> None:
    decided = decide(work=REPO, filesystem=files(write=("src", "tools/rg")))
    assert decided.fields == [("SCOPE_EXCEEDED", "sandbox.filesystem.write[1]")]
    assert decided.policy.write == (f"{REPO}/src",)


def test_what_a_link_hides_is_protected_as_well(tmp_path: Path) -> None:
    repo = tmp_path.resolve()
    (repo / "real").mkdir()
    (repo / "tools").symlink_to("real")
    settings = PolicySettings(repo_root=str(repo), home=str(repo / ".actum"))
    protect = decide(settings=settings, work=str(repo)).policy.protect
    assert {str(repo / "tools"), str(repo / "real")} <= set(protect)


def test_level_extended_may_write_the_directory_of_the_declared_outputs() -> None:
    extended = files(level=FilesystemLevel.EXTENDED)
    decided = decide(filesystem=extended, output_files=("../dist/a", "../dist/b", "x"))
    assert decided.policy.write == (f"{REPO}/dist", WORK)
    assert decided.needed == ()
    for files_elsewhere in (("../a",), ("../dist/a", "../other/b"), ("/no-such-place/x/a",)):
        assert decide(filesystem=extended, output_files=files_elsewhere).policy.write == (WORK,)


def test_level_extended_writes_to_no_directory_through_a_link_in_the_project(
    tmp_path: Path,
) -> None:
    repo = tmp_path.resolve() / "repo"
    for name in ("work", "dist"):
        (repo / name).mkdir(parents=True)
    (repo / "work/out").symlink_to("../dist")
    (tmp_path / "alias").symlink_to(repo)
    settings = PolicySettings(repo_root=str(repo), home=str(repo / ".actum"))
    work, extended = str(repo / "work"), files(level=FilesystemLevel.EXTENDED)
    words: dict[str, Any] = {"settings": settings, "work": work, "filesystem": extended}
    assert decide(**words, output_files=("out/a",)).policy.write == (work,)
    for named in ("../dist/a", f"{tmp_path}/alias/dist/a"):
        assert decide(**words, output_files=(named,)).policy.write == (str(repo / "dist"), work)


ELEVATED = ApprovalNeeded(
    gate="AG-05", target="filesystem level elevated: /etc/hosts, /opt/x", operation="read"
)
OUTSIDE = ApprovalNeeded(gate="AG-04", target="/opt/x", operation="write")


def by(*needs: ApprovalNeeded) -> tuple[Granted, ...]:
    return tuple(Granted(need=need, request_id="r1", decided_by="user:boss") for need in needs)


@pytest.mark.req("000-47", "000-48")
def test_elevated_and_writing_outside_need_approval_and_grant_nothing_without_it() -> None:
    entry = make_entry(scope=make_scope(filesystem=("/",)))
    elevated = files(
        level=FilesystemLevel.ELEVATED, read=(".", "/etc/hosts"), write=("/opt/x", ".")
    )
    decided = decide(entry, filesystem=elevated)
    assert decided.needed == (ELEVATED, OUTSIDE)
    assert (decided.policy.read, decided.policy.write) == ((WORK,), (WORK,))
    for level in (FilesystemLevel.MINIMAL, FilesystemLevel.STANDARD, FilesystemLevel.EXTENDED):
        assert decide(entry, filesystem=files(level=level)).needed == ()


@pytest.mark.req("000-47")
def test_an_approval_grants_exactly_the_listed_paths_and_is_named() -> None:
    entry = make_entry(scope=make_scope(filesystem=("/",)))
    elevated = files(
        level=FilesystemLevel.ELEVATED, read=(".", "/etc/hosts"), write=("/opt/x", ".")
    )
    both = decide(entry, granted=by(ELEVATED, OUTSIDE), filesystem=elevated)
    assert both.needed == ()
    assert both.policy.read == ("/etc/hosts", WORK, "/opt/x")
    assert both.policy.write == (WORK, "/opt/x")
    assert both.policy.approvals == ("AG-01:pin", "AG-05:user:boss:r1", "AG-04:user:boss:r1")
    one = decide(entry, granted=by(ELEVATED), filesystem=elevated)
    assert one.needed == (OUTSIDE,)
    assert one.policy.write == (WORK,)
    other = replace(OUTSIDE, target="/opt/y")
    assert decide(entry, granted=by(other), filesystem=elevated).needed == (ELEVATED, OUTSIDE)


# network


def network(**changes: Any) -> NetworkRequest:
    return NetworkRequest(**changes)


OFF = NetworkPolicy(enabled=False, allow=(), deny=(), outbound=())


@pytest.mark.req("000-51")
def test_offline_is_the_default_even_for_a_tool_with_hosts() -> None:
    assert decide(online()).policy.network == OFF


@pytest.mark.req("000-121", "000-122")
def test_an_override_switches_the_network_on_only_within_the_scope() -> None:
    override = SandboxOverride(network_enabled=True, network_allow=("api.test", "evil.test"))
    within = decide(online(override=override))
    assert within.policy.network == NetworkPolicy(
        enabled=True, allow=("api.test",), deny=(), outbound=("https",)
    )
    assert within.policy.approvals == ("AG-01:pin", "AG-03:pin")
    assert within.violations == ()
    for scope, permissions in (
        (make_scope(network=False, hosts=("api.test",)), make_permissions(outbound=("https",))),
        (make_scope(network=True, hosts=()), make_permissions(outbound=("https",))),
        (make_scope(network=True, hosts=("api.test",)), make_permissions(outbound=())),
    ):
        without = decide(make_entry(override=override, scope=scope, permissions=permissions))
        assert without.policy.network == OFF
        assert without.policy.approvals == ("AG-01:pin",)


def test_a_request_switches_off_what_an_override_switched_on() -> None:
    override = SandboxOverride(network_enabled=True, network_allow=("api.test",))
    for request in (network(enabled=False), network(level=NetworkLevel.OFFLINE)):
        assert decide(online(override=override), network=request).policy.network == OFF


def test_a_request_reaches_the_approved_hosts_by_the_pin() -> None:
    all_of_them = decide(online(), network=network(enabled=True))
    assert all_of_them.policy.network.allow == ("*.cdn.test", "api.test")
    some = decide(online(), network=network(enabled=True, allow=("a.cdn.test:443", "api.test")))
    assert some.policy.network.allow == ("a.cdn.test:443", "api.test")
    assert some.policy.approvals == ("AG-01:pin", "AG-03:pin")
    assert (some.violations, some.needed) == ((), ())


@pytest.mark.parametrize("host", ["evil.test", "cdn.test", "*.test", "*", "api.test.evil.test"])
def test_a_host_beyond_the_scope_is_a_violation(host: str) -> None:
    decided = decide(online(), network=network(enabled=True, allow=("api.test", host)))
    assert decided.fields == [("SCOPE_EXCEEDED", "sandbox.network.allow[1]")]
    assert "*" not in decided.policy.network.allow


def test_asking_for_a_network_that_the_tool_does_not_have_is_a_violation() -> None:
    for request in (network(enabled=True), network(level=NetworkLevel.API)):
        decided = decide(network=request)
        assert decided.fields == [("SCOPE_EXCEEDED", "sandbox.network")]
        assert decided.policy.network == OFF


def test_hosts_alone_do_not_switch_the_network_on() -> None:
    decided = decide(online(), network=network(allow=("api.test",)))
    assert decided.fields == [("SCOPE_EXCEEDED", "sandbox.network.allow[0]")]
    assert decided.policy.network == OFF


def test_the_registry_level_reaches_registries_that_the_tool_may_reach() -> None:
    request = network(level=NetworkLevel.REGISTRY)
    entry = make_entry(
        scope=make_scope(network=True, hosts=("packages.test", "api.test")),
        permissions=make_permissions(outbound=("https",)),
    )
    assert decide(entry, network=request).policy.network.allow == ("packages.test",)
    assert decide(online(), network=request).fields == [("SCOPE_EXCEEDED", "sandbox.network")]


def test_the_projects_api_hosts_bound_the_api_level() -> None:
    request = network(level=NetworkLevel.API)
    assert decide(online(), network=request).policy.network.allow == ("*.cdn.test", "api.test")
    bounded = replace(SETTINGS, api_hosts=("x.cdn.test", "other.test"))
    assert decide(online(), bounded, network=request).policy.network.allow == ("x.cdn.test",)


def test_deny_takes_hosts_away() -> None:
    request = network(enabled=True, deny=("api.test", "bad.cdn.test"))
    found = decide(online(), network=request).policy.network
    assert found.allow == ("*.cdn.test",)
    assert found.deny == ("api.test", "bad.cdn.test")


def connect(target: str) -> ApprovalNeeded:
    return ApprovalNeeded(gate="AG-03", target=target, operation="connect")


@pytest.mark.req("000-55", "004-48")
def test_open_internal_addresses_and_raw_tcp_need_approval() -> None:
    opened = decide(online(), network=network(level=NetworkLevel.OPEN))
    assert opened.needed == (connect("any host"),)
    assert (opened.violations, opened.policy.network) == ((), OFF)
    internal = ("127.0.0.1:80", "10.0.0.8:443", "[::1]:443", "localhost:443", "[fd00::1]:443")
    entry = make_entry(
        scope=make_scope(network=True, hosts=(*internal, "api.test", "8.8.8.8")),
        permissions=make_permissions(outbound=("https", "tcp")),
    )
    decided = decide(entry, network=network(enabled=True))
    assert set(decided.needed) == {*map(connect, internal), connect("class tcp")}
    assert decided.policy.network.allow == ("8.8.8.8", "api.test")
    assert decided.policy.network.outbound == ("https",)
    assert decided.policy.network.internal == ()
    some = (connect("127.0.0.1:80"), connect("class tcp"))
    partly = decide(entry, granted=by(*some), network=network(enabled=True)).policy.network
    assert partly.allow == ("127.0.0.1:80", "8.8.8.8", "api.test")
    assert partly.internal == ("127.0.0.1:80",)
    assert partly.outbound == ("https", "tcp")


def anywhere(**changes: Any) -> Entry:
    """A tool whose pin approves no host by name but one."""
    return make_entry(
        scope=make_scope(network=True, hosts=("*", "api.test")),
        permissions=make_permissions(outbound=("https",)),
        **changes,
    )


def test_a_host_that_only_a_star_covers_needs_an_approval() -> None:
    request = network(enabled=True, allow=("api.test", "evil.test", "10.0.0.1:443"))
    decided = decide(anywhere(), network=request)
    assert set(decided.needed) == {connect("evil.test"), connect("10.0.0.1:443")}
    assert decided.violations == ()
    assert decided.policy.network.allow == ("api.test",)
    approved = decide(anywhere(), granted=by(connect("evil.test")), network=request)
    assert approved.policy.network.allow == ("api.test", "evil.test")
    registry = decide(anywhere(), network=network(level=NetworkLevel.REGISTRY))
    assert (registry.needed, registry.policy.network.allow) == ((), ("packages.test",))
    bounded = replace(SETTINGS, api_hosts=("other.test",))
    api = decide(anywhere(), bounded, network=network(level=NetworkLevel.API))
    assert (api.needed, api.policy.network.allow) == ((), ("other.test",))


def test_the_level_of_the_adapter_holds_for_a_call_that_names_neither_level_nor_hosts() -> None:
    entry = anywhere(override=SandboxOverride(network_level=NetworkLevel.REGISTRY))
    for request in (network(), network(enabled=True)):
        decided = decide(entry, network=request)
        assert (decided.violations, decided.needed) == ((), ())
        assert decided.policy.network.allow == ("packages.test",)
    for request in (network(enabled=False), network(level=NetworkLevel.OFFLINE)):
        assert decide(entry, network=request).policy.network == OFF
    named = decide(entry, network=network(enabled=True, allow=("api.test",)))
    assert named.policy.network.allow == ("api.test",)
    off = SandboxOverride(network_level=NetworkLevel.REGISTRY, network_enabled=False)
    assert decide(anywhere(override=off)).policy.network == OFF


@pytest.mark.parametrize("wildcard", ["*", "*:443"])
@pytest.mark.parametrize(
    "request_",
    [NetworkRequest(enabled=True), NetworkRequest(level=NetworkLevel.API)],
    ids=["enabled", "api"],
)
@pytest.mark.req("000-55")
def test_any_host_takes_an_approval_by_whatever_way_it_is_asked_for(
    wildcard: str, request_: NetworkRequest
) -> None:
    entry = make_entry(
        scope=make_scope(network=True, hosts=(wildcard,)),
        permissions=make_permissions(outbound=("https",)),
    )
    decided = decide(entry, network=request_)
    assert decided.needed == (connect("any host"),)
    assert decided.policy.network == OFF
    approved = decide(entry, granted=by(connect("any host")), network=request_)
    assert approved.policy.network.allow == (wildcard,)
    assert approved.policy.approvals[-1] == "AG-03:user:boss:r1"


def test_a_name_that_the_project_maps_to_an_internal_address_needs_approval() -> None:
    resolve = {"api.test:443": "127.0.0.1:8443", "x.cdn.test:443": "10.0.0.1:443"}
    settings = replace(SETTINGS, resolve=resolve)
    need = connect("api.test:443 at 127.0.0.1:8443")
    asked = decide(online(), settings, network=network(enabled=True))
    assert asked.needed == (need,)  # a wildcard stands for no internal address
    assert asked.policy.network.allow == ("*.cdn.test",)
    approved = decide(online(), settings, granted=by(need), network=network(enabled=True))
    assert approved.policy.network.internal == ("api.test:443",)
    moved = replace(settings, resolve={"api.test:443": "127.0.0.1:22"})
    again = decide(online(), moved, granted=by(need), network=network(enabled=True))
    assert again.needed == (connect("api.test:443 at 127.0.0.1:22"),)
    public = replace(settings, resolve={"api.test:443": "8.8.8.8:443"})
    assert decide(online(), public, network=network(enabled=True)).needed == ()


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "1.2.3.0x4:80"])
def test_an_address_in_an_odd_spelling_is_no_host(host: str) -> None:
    entry = make_entry(
        scope=make_scope(network=True, hosts=(host,)),
        permissions=make_permissions(outbound=("https",)),
    )
    decided = decide(entry, network=network(enabled=True))
    assert decided.fields == [("SCOPE_EXCEEDED", "sandbox.network.allow")]


@pytest.mark.parametrize("host", ["198.18.1.1:80", "198.19.255.255", "127.0.0.53:53"])
def test_an_address_that_every_sandbox_has_itself_is_no_host(host: str) -> None:
    entry = make_entry(
        scope=make_scope(network=True, hosts=(host,)),
        permissions=make_permissions(outbound=("https",)),
    )
    decided = decide(entry, network=network(enabled=True))
    assert decided.fields == [("SCOPE_EXCEEDED", "sandbox.network.allow")]


@pytest.mark.req("000-18")
def test_an_enabled_network_with_an_empty_list_reaches_nothing() -> None:
    decided = decide(online(), network=network(enabled=True, allow=()))
    assert decided.policy.network == OFF
    assert decided.violations == ()


def test_the_seeds_ripgrep_adapter_gets_sixty_seconds_256_mib_and_no_network() -> None:
    override = SandboxOverride(timeout_ms=60_000, memory_mb=256, network_enabled=False)
    policy = decide(online(override=override)).policy
    assert (policy.limits.timeout_ms, policy.limits.memory_mb) == (60_000, 256)
    assert policy.network == OFF


# never wider than any input, in any dimension

PLACES = [REPO, WORK, f"{WORK}/a", f"{WORK}/a/b", f"{REPO}/lib", "/no-such-place", "/opt/x", "/"]
HOSTS = ["api.test", "api.test:443", "*.cdn.test", "x.cdn.test", "packages.test", "10.0.0.1", "*"]
paths = st.lists(st.sampled_from(PLACES), max_size=3).map(tuple)
hosts = st.lists(st.sampled_from(HOSTS), max_size=3).map(tuple)
flag = st.sampled_from([None, True, False])

overrides = st.builds(
    SandboxOverride,
    timeout_ms=st.none() | st.integers(1_000, 600_000),
    memory_mb=st.none() | st.integers(64, 4_096),
    network_enabled=flag,
    network_allow=st.none() | hosts,
)
requests = st.builds(
    SandboxRequest,
    timeout_ms=st.none() | st.integers(1_000, 600_000),
    memory_mb=st.none() | st.integers(64, 4_096),
    cpu_cores=st.none() | st.integers(1, 4),
    filesystem=st.builds(
        FilesystemRequest,
        level=st.none() | st.sampled_from(FilesystemLevel),
        read=st.none() | paths,
        write=st.none() | paths,
        deny=paths,
    ),
    network=st.builds(
        NetworkRequest,
        level=st.none() | st.sampled_from(NetworkLevel),
        enabled=flag,
        allow=st.none() | hosts,
        deny=hosts,
    ),
    processes=st.builds(
        ProcessRequest, max_children=st.none() | st.integers(0, 100), allow_fork=flag
    ),
)
scopes = st.builds(
    make_scope,
    data_access=st.sampled_from(["read", "write", "none"]),
    network=st.booleans(),
    hosts=hosts,
    filesystem=paths,
)
permissions_ = st.builds(
    make_permissions,
    outbound=st.lists(st.sampled_from(["dns", "http", "https", "tcp"]), unique=True).map(tuple),
    read=st.none() | paths,
    write=st.none() | paths,
    max_duration_s=st.none() | st.integers(1, 700),
    max_memory_mb=st.none() | st.integers(16, 8_192),
    max_cpu_cores=st.none() | st.integers(1, 8),
)

EVERYTHING = EffectivePolicy(
    runner=RunnerKind.LOCAL,
    limits=Limits(
        timeout_ms=TIMEOUT_MS.most,
        memory_mb=MEMORY_MB.most,
        cpu_cores=CPU_CORES.most,
        max_children=MAX_CHILDREN.most,
        allow_fork=True,
    ),
    read=("/",),
    write=("/",),
    deny=(),
    protect=(),
    network=NetworkPolicy(
        enabled=True,
        allow=("*",),
        deny=(),
        outbound=("dns", "http", "https", "tcp"),
        internal=("*",),
    ),
    environment=("A", "B"),
)


def bounded(limits: dict[str, Any], **changes: Any) -> EffectivePolicy:
    known = {name: value for name, value in limits.items() if value is not None}
    return replace(EVERYTHING, limits=replace(EVERYTHING.limits, **known), **changes)


def approved_at_most(given: frozenset[ApprovalNeeded]) -> EffectivePolicy:
    """What the approvals alone would permit: without any, no more than anybody may have."""
    elevated = any(need.gate == "AG-05" for need in given)
    outside = tuple(need.target for need in given if need.gate == "AG-04")
    ordinary = (REPO, *SETTINGS.dependencies)
    hosts_ = tuple(host for host in HOSTS if host not in ("*", "10.0.0.1"))
    internal = tuple(need.target for need in given if need.target.startswith("10.0.0.1"))
    return replace(
        EVERYTHING,
        read=("/",) if elevated else (*ordinary, *outside),
        write=(WORK, f"{WORK}/output", *outside),
        network=NetworkPolicy(
            enabled=True,
            allow=("*",) if connect("any host") in given else (*hosts_, "10.0.0.1"),
            deny=(),
            outbound=("dns", "http", "https") + (("tcp",) if connect("class tcp") in given else ()),
            internal=internal,
        ),
    )


def ceilings(entry: Entry, request: SandboxRequest, left: int | None) -> dict[str, EffectivePolicy]:
    """Each input on its own, as the widest policy that it would permit."""
    scope, permissions = entry.tool.scope, entry.tool.permissions
    override, files_, net = entry.adapter.override, request.filesystem, request.network
    everything = EVERYTHING.network
    level = expand_filesystem(
        files_.level or FilesystemLevel.STANDARD,
        repo_root=REPO,
        working_directory=WORK,
        dependencies=SETTINGS.dependencies,
    )
    longest = permissions.max_duration_s
    enabled = net.enabled is not False and net.level is not NetworkLevel.OFFLINE
    read = ("/",) if permissions.read is None else (*permissions.read, *(permissions.write or ()))
    return {
        "table": bounded({}, environment=("A",), deny=(SETTINGS.home,)),
        "time left": bounded({"timeout_ms": None if left is None else max(left, 0)}),
        "override": bounded(
            {
                "timeout_ms": override.timeout_ms if request.timeout_ms is None else None,
                "memory_mb": override.memory_mb if request.memory_mb is None else None,
            }
        ),
        "request": bounded(
            {
                "timeout_ms": request.timeout_ms,
                "memory_mb": request.memory_mb,
                "cpu_cores": request.cpu_cores,
                "max_children": request.processes.max_children,
                "allow_fork": request.processes.allow_fork,
            },
            read=("/",) if files_.read is None else (*files_.read, *(files_.write or ())),
            write=("/",) if files_.write is None else files_.write,
            deny=files_.deny,
            network=NetworkPolicy(
                enabled=enabled,
                allow=("*",) if net.allow is None else net.allow,
                deny=net.deny,
                outbound=everything.outbound if enabled else (),
                internal=everything.internal,
            ),
        ),
        "level": bounded(
            {},
            read=level.read,
            write=(files_.write or ()) if level.write_if_listed else level.write,
        ),
        "scope": bounded(
            {},
            read=scope.filesystem if scope.data_access != "none" else (),
            write=scope.filesystem if scope.data_access == "write" else (),
            network=replace(everything, enabled=scope.network, allow=scope.hosts),
        ),
        "permissions": bounded(
            {
                "timeout_ms": None if longest is None else longest * 1_000,
                "memory_mb": permissions.max_memory_mb,
                "cpu_cores": permissions.max_cpu_cores,
            },
            read=read,
            write=read if permissions.write is None else permissions.write,
            network=replace(everything, outbound=permissions.outbound),
        ),
        "governing files": replace(
            EVERYTHING,
            protect=(f"{REPO}/tools", f"{REPO}/actum.toml", f"{REPO}/rules", f"{REPO}/tools.lock"),
        ),
    }


@given(
    override=overrides,
    request_=requests,
    scope=scopes,
    permissions=permissions_,
    left=st.none() | st.integers(-1, 700_000),
    data=st.data(),
)
def test_the_effective_policy_is_never_wider_than_any_of_its_inputs(
    override: SandboxOverride,
    request_: SandboxRequest,
    scope: Any,
    permissions: Any,
    left: int | None,
    data: st.DataObject,
) -> None:
    entry = make_entry(
        override=override,
        scope=scope,
        permissions=permissions,
        environment=("A", "LD_PRELOAD", "PATH"),
    )
    contract = make_contract(working_directory=WORK, sandbox=request_)
    settings = replace(SETTINGS, time_left_ms=left)
    _, _, needed = effective_policy(contract, entry, settings)
    given = data.draw(st.sets(st.sampled_from(needed))) if needed else set()
    policy, _, missing = effective_policy(contract, entry, settings, imagined(given))
    assert set(missing) == set(needed) - given
    bounds = ceilings(entry, request_, left) | {"approvals": approved_at_most(frozenset(given))}
    exceeded = {
        name: wider(policy, ceiling) for name, ceiling in bounds.items() if wider(policy, ceiling)
    }
    assert exceeded == {}


@given(override=overrides, request_=requests, scope=scopes, permissions=permissions_)
def test_equal_inputs_give_equal_policies_with_equal_digests(
    override: SandboxOverride, request_: SandboxRequest, scope: Any, permissions: Any
) -> None:
    entry = make_entry(override=override, scope=scope, permissions=permissions)
    contract = make_contract(working_directory=WORK, sandbox=request_)
    first, second = (effective_policy(contract, entry, SETTINGS) for _ in range(2))
    assert first == second
    assert first[0].sha256 == second[0].sha256
