"""The local runner: one plan, one sandbox on this host, one capture.

Lifecycle, each step always reached or explicitly aborted: receive the validated plan, prepare an
isolated workspace, apply limits, execute, capture, emit the last event, return. No retry, no
choice, no change of permissions. It stores nothing of earlier plans.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from actum import native
from actum.capture.model import Capture, Enforced
from actum.contract.call import EffectivePolicy, Plan
from actum.contract.limits import IDLE_S, MESSAGE_BYTES, STDIN_BYTES
from actum.contract.model import RunnerKind
from actum.errors import Refused
from actum.evidence.records.trace import Emit
from actum.images.image_store import in_use
from actum.runners import manifest
from actum.runners.attempt_steps import Attempts, Launched, Order, redaction_of
from actum.runners.base import Cancel, Capability, Channel, OnOutput, Permit, require_proof
from actum.runners.cleanup import Cleanup
from actum.runners.concurrency import ConcurrencyLimit
from actum.runners.egress_setup import Egress, planned
from actum.runners.init_request import Description, in_layers, with_secrets
from actum.runners.layers import LayersAhead, copy_in, takes_marks
from actum.runners.lifecycle import never_started
from actum.runners.teardown import Teardown
from actum.runners.warm import Likeness, Shape, WarmInterpreters
from actum.sandbox import host_probe
from actum.sandbox.cgroup import Cgroup
from actum.sandbox.egress.doors import Doors
from actum.sandbox.handle import Sandbox
from actum.sandbox.spawner_client import Spawner
from actum.secrets.given import Secrets
from actum.value import value

if TYPE_CHECKING:
    from actum.runners.channel import Duplex
    from actum.sandbox.egress.relay import Relay
    from actum.sandbox.wire import Request

#: Prepared sandboxes a long-lived runner keeps at most.
_POOL_SIZE = 8
#: Kept tools at once. They wait most of the time, so they take no place of running executions.
_MAX_KEPT = 32
#: A request so soon after the last answer comes without a pause, and the next one will too.
_HURRY_S = 0.001


@value
class _Order(Order):
    likeness: Likeness
    shape: Shape | None  #: of a warm interpreter that can serve it


class LocalRunner:
    """Namespaces, cgroups, Landlock and seccomp on this host."""

    kind = RunnerKind.LOCAL

    def __init__(
        self,
        *,
        resolve: Mapping[str, str] | None = None,
        authorities: str | None = None,
        max_kept: int = _MAX_KEPT,
        egress: Mapping[str, int] | None = None,
        secrets: Secrets | None = None,
        relay: Relay | None = None,
        pool: bool = False,
        spawner: Spawner | None = None,
        governed: tuple[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._attempts = Attempts(
            self.kind, resolve=resolve or {}, egress=egress or {}, relay=relay, governed=governed
        )
        self._secrets = secrets or Secrets({})
        self._kept = ConcurrencyLimit(max_kept, queued=0)
        self._authorities = authorities
        self._spawner = spawner or Spawner(pool_size=_POOL_SIZE if pool else 0)
        self._warm = WarmInterpreters() if pool else None
        self._teardown = Teardown(self._spawner.refill, self._spawner.take_in) if pool else None
        self._host: host_probe.Host | None = None
        #: Devices of a folder and its layers, and its owner -> whether an overlay works there.
        self._overlays: dict[tuple[int, int, int, int], bool] = {}
        self._equipped = False
        #: By thread, until its record is closed: no thread waits for another thread's tool.
        self._left: dict[int, tuple[_Order, Cleanup | None, bool]] = {}
        self._rested = 0.0  #: time of the last answer

    @property
    def host(self) -> host_probe.Host:
        if self._host is None:
            self._host = host_probe.examine()
        return self._host

    def warm_up(self) -> None:
        """Start the spawner while the caller still validates."""
        self._spawner.start()
        if not self._equipped:
            self._equip()

    def _equip(self) -> None:
        """Once this host is examined, send the spawner the location of its control groups."""
        if self.host.cgroups is not None:
            self._spawner.equip(self.host.cgroups)
            self._equipped = True

    def capabilities(self) -> tuple[Capability, ...]:
        return manifest.capabilities(self.host)

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        native.content(native.INIT)  # a missing native build is a fault, also in a check
        host = self.host
        for what, (problem, remedy) in host.problems.items():
            raise Refused(
                "LIMIT_NOT_ENFORCEABLE",
                f"The local runner cannot enforce its limits on this host ({what}): {problem}.",
                remedy=f"Remedy: {remedy}. `actum doctor` lists everything.",
            )
        return manifest.foresee(policy, host)

    def takes_overlay(self, plan: Plan, grant: str) -> bool:
        below, above = os.stat(grant), plan.layers[grant]
        # By the owner as well: as root the overlay needs an idmapped mount for any other owner.
        pair = (below.st_dev, os.stat(above).st_dev, below.st_uid, below.st_gid)
        known = self._overlays.get(pair)
        if known is None:
            found = Description(plan).as_found()
            grants = [each for each in found.request["grants"] if each["path"] == grant]
            known = takes_marks(above) and self._spawner.opens(found.owner, grants)
            self._overlays[pair] = known
        return known

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
        hurried = time.monotonic() < self._rested + _HURRY_S
        cleanup = None
        try:
            capture, cleanup = self._carry_out(order, emit, on_output, cancel, permit)
        finally:
            self._left[threading.get_ident()] = order, cleanup, hurried
        return capture

    def rest(self) -> None:
        left = self._left.pop(threading.get_ident(), None)
        if left is not None:
            self._clean_up(*left)
            self._rested = time.monotonic()

    def _clean_up(self, order: _Order, cleanup: Cleanup | None, hurried: bool) -> None:
        if self._warm is not None and order.shape is not None:
            self._spawner.teach()  # at once: the next request depends on it
        refill = partial(self._refill_interpreters, order)
        if self._teardown is not None and cleanup is not None:
            self._teardown.schedule(cleanup, refill, hurried=hurried)
            return
        self._spawner.refill()
        if cleanup is not None:
            cleanup.end()
        refill()

    def _order(self, plan: Plan) -> _Order:
        """Refusals come before the first event."""
        require_proof(plan)
        foreseen = self.foresee(plan.policy)
        found = Description(plan).as_found()
        reach = planned(plan.policy)
        egress = Egress(None if reach is None else Doors(reach), self._authorities)
        # A token is stored for one approved version of a tool and of its adapter.
        holder = f"{plan.tool.tool_id} {plan.tool.pin} {plan.adapter.sha256}"
        secrets = self._secrets.give(plan.secrets, holder)
        request = egress.described(found.request)
        likeness = Likeness(plan)
        return _Order(
            plan=plan,
            foreseen=foreseen,
            likeness=likeness,
            request=request,
            owner=found.owner,
            # No interpreter waits with a copy or sealed inputs: they are made for this request.
            shape=None
            if self._warm is None or plan.sealed or any(map(copy_in, plan.layers.values()))
            else likeness.shape(request, found.owner),
            modes=found.modes,
            egress=egress,
            secrets=secrets,
            redaction=redaction_of(secrets),
        )

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

    def _carry_out(
        self,
        order: _Order,
        emit: Emit,
        on_output: OnOutput | None,
        cancel: Cancel | None,
        permit: Permit | None,
        duplex: Duplex | None = None,
    ) -> tuple[Capture, Cleanup]:
        request = with_secrets(order.request, order.secrets)
        with in_use(order.plan.image):
            if duplex is None:
                sandbox, cgroup, release = self._sandbox(order, request)
            else:
                sandbox, cgroup = self._launch(request, order.owner, duplex.stdin)
                release = sandbox.go
            started = Launched(sandbox=sandbox, cgroup=cgroup, release=release)
            return self._attempts.carry_out(
                order,
                started,
                emit,
                on_output=on_output,
                cancel=cancel,
                permit=permit,
                duplex=duplex,
            )

    def _sandbox(
        self, order: _Order, request: Request
    ) -> tuple[Sandbox, Cgroup, Callable[[], None]]:
        """A warm or a new sandbox in its group, and the function that starts it."""
        stdin = order.plan.stdin
        # An interpreter that waits gets its order through a pipe, which must hold all of it.
        if self._warm is not None and order.shape is not None and len(stdin) <= STDIN_BYTES:
            warm = self._warm.take_into(order.plan.layers, order.shape)
            if warm is not None:
                return warm.sandbox, warm.cgroup, lambda: warm.give(stdin)
        sandbox, cgroup = self._launch(request, order.owner, stdin)
        return sandbox, cgroup, sandbox.go

    def _refill_interpreters(self, order: _Order) -> None:
        if self._warm is not None and order.shape is not None:
            self._warm.remove_left()
            request, owner = order.request, order.owner
            self._warm.refill(
                order.shape,
                lambda: order.likeness.shape(request, owner),
                lambda stdin: self._launch_ahead(order, stdin),
                recurs=order.likeness.recurs,
            )

    def _launch_ahead(
        self, order: _Order, stdin: int
    ) -> tuple[Sandbox, Cgroup, LayersAhead | None]:
        request, layers = order.request, None
        if order.plan.layers:
            layers = LayersAhead.beside(order.plan.layers)
            request = in_layers(request, layers.folders)
        try:
            sandbox, cgroup = self._launch(request, order.owner, stdin)
        except BaseException:
            if layers is not None:
                layers.discard()
            raise
        self._spawner.refill()  # replace the member it took
        return sandbox, cgroup, layers

    def _launch(
        self, request: Request, owner: tuple[int, int], stdin: bytes | int
    ) -> tuple[Sandbox, Cgroup]:
        if not self._equipped:
            self._equip()
        return self._spawner.launch(request, owner, stdin)

    def close(self) -> None:
        while self._left:
            self._clean_up(*self._left.popitem()[1])
        if self._teardown is not None:
            self._teardown.close()
        if self._warm is not None:
            self._warm.close()
        self._spawner.close()
        self._attempts.close()
