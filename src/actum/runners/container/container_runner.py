"""The container runner: one plan, one container of Docker or Podman, one capture.

The engine makes the container and sets its limits; our init inside does what it does everywhere
(`sandbox/jail/container.c`), so endings, denials and records are those of the local runner. A
container serves one plan. It works on a copy of what the tool may write: an engine cannot mount the
layers of a transaction.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actum import native
from actum.capture.model import Capture, Enforced
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.limits import IDLE_S, MESSAGE_BYTES
from actum.contract.model import RunnerKind
from actum.errors import Refused, SandboxUnavailable
from actum.evidence.records.trace import Emit
from actum.runners import manifest
from actum.runners.attempt_steps import Attempts, Launched, Order, redaction_of
from actum.runners.base import Cancel, Capability, Channel, OnOutput, Permit, require_proof
from actum.runners.cleanup import Cleanup
from actum.runners.concurrency import ConcurrencyLimit
from actum.runners.container import container_config, host_image, leftovers, staged_files
from actum.runners.container.container_config import Staged
from actum.runners.container.container_limits import ContainerLimits
from actum.runners.container.copies_ahead import CopiesAhead
from actum.runners.container.engine_api import Engine, EngineError, socket_of, usual_socket
from actum.runners.container.engine_host import EngineHost, examine
from actum.runners.container.idle_containers import (
    Form,
    Idle,
    IdleContainers,
    form_of,
    pin,
)
from actum.runners.container.started_container import Removals, Started, start
from actum.runners.egress_setup import Egress, planned
from actum.runners.init_request import Description, in_layers, with_secrets
from actum.runners.layers import copy_in
from actum.runners.lifecycle import never_started
from actum.runners.teardown import Teardown
from actum.sandbox import proc_files, wire
from actum.sandbox.egress.doors import CONTAINER_NETWORK, Doors
from actum.sandbox.identity import TOOL_ID
from actum.sandbox.root import write_etc
from actum.sandbox.sweep import make_home, remove_home
from actum.secrets.given import Secrets

if TYPE_CHECKING:
    from actum.runners.channel import Duplex
    from actum.sandbox.egress.relay import Relay
    from actum.sandbox.wire import Request

#: Kept tools at once, as of the local runner.
_MAX_KEPT = 32


class ContainerRunner:
    """Containers of one engine on this host."""

    kind = RunnerKind.DOCKER

    def __init__(
        self,
        *,
        host: str | None = None,
        runtime: str | None = None,
        resolve: Mapping[str, str] | None = None,
        authorities: str | None = None,
        max_kept: int = _MAX_KEPT,
        egress: Mapping[str, int] | None = None,
        secrets: Secrets | None = None,
        relay: Relay | None = None,
        pool: bool = False,
        governed: tuple[str, tuple[str, ...]] | None = None,
        host_folders: Mapping[str, str] | None = None,
    ) -> None:
        """`host_folders`: in a work item, the project -> the folder of the host that the item shows
        in its place; empty if there is none, because the item shows a mount of its process."""
        self._attempts = Attempts(
            self.kind, resolve=resolve or {}, egress=egress or {}, relay=relay, governed=governed
        )
        self._host_folders = host_folders or {}
        self._secrets = secrets or Secrets({})
        self._kept = ConcurrencyLimit(max_kept, queued=0)
        self._authorities = authorities
        self._engine = Engine(usual_socket() if host is None else socket_of(host))
        self._removals = Removals(self._engine)
        self._runtime = runtime or ""
        self._teardown = Teardown(_nothing, _nothing) if pool else None
        self._idle = IdleContainers() if pool else None
        self._guard = threading.Lock()
        self._examined: EngineHost | None = None
        self._image: str | None = None
        self._home: Path | None = None
        self._etc_folders: tuple[str, ...] = ()
        self._left: dict[int, Cleanup | None] = {}

    @property
    def host(self) -> EngineHost:
        # An engine that did not answer may be there by now.
        if self._examined is None or self._examined.problems:
            self._examined = examine(self._engine, self._runtime)
        return self._examined

    def remove_leftovers(self) -> tuple[str, ...]:
        """Remove containers of dead processes; returns their ids."""
        return leftovers.remove(self._engine)

    def capabilities(self) -> tuple[Capability, ...]:
        return self.host.capabilities()

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        native.content(native.INIT)  # a missing native build is a fault, also in a check
        if "" in self._host_folders.values():
            raise Refused(
                "RUNNER_UNAVAILABLE",
                "The docker runner takes no call of this work item: an engine does not see the"
                " item's own view of the project.",
                remedy="As root, set `[work] engine` in actum.toml to auto or copy. Otherwise"
                " approve the tool for the local runner: permissions.execution.runner in its"
                " tool.yaml.",
            )
        for what, (problem, remedy) in self.host.problems.items():
            if what == "engine":
                raise Refused(
                    "RUNNER_UNAVAILABLE",
                    f"The docker runner is not available: {problem}.",
                    remedy=remedy,
                )
            raise Refused(
                "LIMIT_NOT_ENFORCEABLE",
                f"The docker runner cannot enforce its limits here ({what}): {problem}.",
                remedy=f"Remedy: {remedy} `actum doctor` lists everything.",
            )
        if policy.writes_directly and not self._host_folders:
            raise Refused(
                "LIMIT_NOT_ENFORCEABLE",
                "The docker runner lets no tool write directly: an engine cannot watch the covers"
                " of governing names.",
                remedy='Leave `[workspace] changes` at "transaction", or use the local runner.',
            )
        return manifest.foresee(policy, self.host.enforcing)

    def takes_overlay(self, plan: Plan, grant: str) -> bool:  # noqa: ARG002 -- part of the port
        return False

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        order = self._order(plan)
        if cancel is not None and cancel.requested:
            if permit is not None:
                permit()  # a cancelled invocation is recorded too
            return never_started(plan, self.kind, emit, order.foreseen)
        self.rest()  # if the last caller did not
        cleanup = None
        try:
            capture, cleanup = self._carry_out(order, emit, on_output, cancel, permit)
        finally:
            self._left[threading.get_ident()] = cleanup
        return capture

    def open(
        self,
        plan: Plan,
        emit: Emit,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
        *,
        idle_s: float = IDLE_S,
        message_bytes: int = MESSAGE_BYTES,
    ) -> Channel:
        from actum.runners.channel import open_channel

        return open_channel(
            plan,
            self._kept,
            self._order,
            lambda order, duplex: self._carry_out(order, emit, None, cancel, permit, duplex),
            idle_s=idle_s,
            message_bytes=message_bytes,
        )

    def rest(self) -> None:
        self._clean_up(self._left.pop(threading.get_ident(), None))

    def _clean_up(self, cleanup: Cleanup | None) -> None:
        if cleanup is None:
            return
        if self._teardown is not None:
            self._teardown.schedule(cleanup, _nothing)
        else:
            cleanup.end()

    def close(self) -> None:
        while self._left:
            self._clean_up(self._left.popitem()[1])
        if self._teardown is not None:
            self._teardown.close()
        if self._idle is not None:
            self._idle.close()
        self._removals.again()
        self._attempts.close()
        with self._guard:
            if self._home is not None:
                remove_home(self._home)
                self._home = None

    # -- one attempt ------------------------------------------------------------------------

    def _order(self, plan: Plan) -> Order:
        """Refusals come before the first event."""
        require_proof(plan)
        foreseen = self.foresee(plan.policy)
        if plan.image is not None:
            raise Refused(
                "RUNNER_UNAVAILABLE",
                "The docker runner runs this host's programs only, not those of an image.",
                remedy="Approve the tool for the local runner, which takes any image.",
            )
        if not all(copy_in(layers) for layers in plan.layers.values()):
            raise Refused(
                "OVERLAY_UNSUPPORTED",
                "The docker runner works on a copy of what a tool may write.",
                remedy="Set `[workspace] engine` in actum.toml to auto or copy.",
            )
        found = Description(plan).as_found()
        reach = planned(plan.policy)
        doors = None if reach is None else Doors(reach, network=CONTAINER_NETWORK)
        if doors is not None and doors.literals:
            raise Refused(
                "LIMIT_NOT_ENFORCEABLE",
                f"The docker runner reaches hosts by name only, not {doors.literals[0]}.",
                remedy="Name the host, with its address in [egress.resolve] of actum.toml.",
            )
        egress = Egress(doors, self._authorities)
        holder = f"{plan.tool.tool_id} {plan.tool.pin} {plan.adapter.sha256}"
        secrets = self._secrets.give(plan.secrets, holder)
        request = egress.described(found.request)
        return Order(
            plan=plan,
            foreseen=foreseen,
            request={**request, "addresses": []},
            owner=found.owner,
            modes=found.modes,
            egress=egress,
            secrets=secrets,
            redaction=redaction_of(secrets),
        )

    def _carry_out(
        self,
        order: Order,
        emit: Emit,
        on_output: OnOutput | None,
        cancel: Cancel | None,
        permit: Permit | None,
        duplex: Duplex | None = None,
    ) -> tuple[Capture, Cleanup]:
        started = self._start(order)
        sandbox = started.sandbox

        def release() -> None:
            sandbox.go()
            sandbox.asks_first = True

        try:
            packed = wire.pack(with_secrets(order.request, order.secrets), [])
            sandbox.give(packed, order.plan.stdin if duplex is None else duplex.stdin)
        except BaseException:
            started.discard()
            raise
        launched = Launched(
            sandbox=sandbox,
            cgroup=started.group,
            release=release,
            container_id=started.container_id,
        )
        found = self._attempts.carry_out(
            order, launched, emit, on_output=on_output, cancel=cancel, permit=permit, duplex=duplex
        )
        self._refill(order)
        return found

    def _start(self, order: Order) -> Started:
        self._removals.again()
        request, steady = order.request, order.plan.steady
        allow_fork = request["max_children"] > 0
        form = None if self._idle is None else self._form(request, allow_fork, steady)
        if self._idle is not None and form is not None:
            waiting = self._idle.take(form, request)
            if waiting is not None:
                return waiting
        own = make_home()
        try:
            staged_files.make(own)
            staged_files.fill(own, request)
        except BaseException:
            remove_home(own)
            raise
        return self._made(own, request, allow_fork=allow_fork, steady=steady)

    def _made(self, own: Path, request: Request, *, allow_fork: bool, steady: bool) -> Started:
        """A new container, which is shown the folders of `request`. `own` is removed with it."""
        limits = ContainerLimits.of(request)
        try:
            staged = Staged(common=str(self._common()), etc_folders=self._etc_folders, own=str(own))
            wanted = self._config(request, staged, limits)
        except BaseException:
            remove_home(own)
            raise
        return start(
            self._engine,
            self._removals,
            wanted,
            limits,
            own,
            uid=self._user()[0],
            allow_fork=allow_fork,
            steady=steady,
        )

    # -- containers that wait -----------------------------------------------------------------

    def _form(self, request: Request, allow_fork: bool, steady: bool) -> Form | None:
        common = str(self._common())
        staged = Staged(common=common, etc_folders=self._etc_folders, own="")
        shown = (each.source for each in container_config.system_mounts(staged))
        system = tuple(path for path in shown if not path.startswith(common))
        return form_of(request, allow_fork=allow_fork, steady=steady, system=system)

    def _refill(self, order: Order) -> None:
        """Have a container ready for the next request that differs in its call only."""
        if self._idle is None:
            return
        request, steady = order.request, order.plan.steady
        allow_fork = request["max_children"] > 0
        form = self._form(request, allow_fork, steady)
        if form is not None:
            self._idle.refill(form, lambda: self._made_ahead(form, request, allow_fork, steady))

    def _made_ahead(
        self, form: Form, request: Request, allow_fork: bool, steady: bool
    ) -> Idle | None:
        """``None`` if the host's files have changed meanwhile."""
        layers = {each["path"]: each["layers"] for each in request["grants"] if each["layers"]}
        with contextlib.ExitStack() as undo:
            pins = pin(form.pinned)
            for descriptor in pins:
                undo.callback(os.close, descriptor)
            copies = CopiesAhead.beside(layers, form.covered) if layers else None
            if copies is not None:
                undo.callback(copies.discard)
                request = in_layers(request, copies.folders)
            own = make_home()
            try:
                staged_files.make(own)
            except BaseException:
                remove_home(own)
                raise
            started = self._made(own, request, allow_fork=allow_fork, steady=steady)
            undo.pop_all()
        idle = Idle(started=started, own=own, copies=copies, pins=pins, since=time.monotonic())
        found = self._form(request, allow_fork, steady)
        if found is None or found.key != form.key:
            idle.discard()
            return None
        return idle

    def _config(self, request: Request, staged: Staged, limits: ContainerLimits) -> dict[str, Any]:
        try:
            image = self._host_image()
            podman = self._engine.info.name == "podman"
        except EngineError as error:
            raise SandboxUnavailable(f"{error}.", remedy=error.remedy) from error
        mounts = (
            *container_config.system_mounts(staged),
            *container_config.common_mounts(staged),
            *container_config.granted_mounts(request, staged, self._host_folders),
        )
        return container_config.config(
            image,
            limits,
            mounts,
            user=self._user(),
            podman=podman,
            runtime=self._runtime,
            version=self.host.cgroup_version,
        )

    def _host_image(self) -> str:
        with self._guard:
            if self._image is None:
                self._image = host_image.require_host_image(self._engine)
            return self._image

    @staticmethod
    def _user() -> tuple[int, int]:
        """As on the local runner: an id of no other user for root, and otherwise the caller."""
        uid = os.geteuid()
        return (TOOL_ID, TOOL_ID) if uid == 0 else (uid, os.getegid())

    def _common(self) -> Path:
        """Files that all containers of this runner are shown."""
        with self._guard:
            if self._home is None:
                home = make_home()
                (home / "init").write_bytes(native.content(native.INIT))
                (home / "init").chmod(0o555)
                (home / "etc").mkdir()
                self._etc_folders = tuple(write_etc(str(home / "etc"), *self._user()))
                (home / "etc").chmod(0o755)
                (home / "proc").mkdir()
                texts = proc_files.texts()
                for name in container_config.PROC_FILES:
                    (home / "proc" / name).write_text(texts[name])
                    (home / "proc" / name).chmod(0o444)
                (home / "nothing").mkdir(mode=0)
                (home / "no-file").touch(mode=0)
                self._home = home
            return self._home


def _nothing() -> None:
    pass
