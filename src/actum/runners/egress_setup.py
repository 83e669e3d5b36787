"""The egress of one attempt on the local runner: doors before the start, relay during the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actum.capture.model import Connection
from actum.contract.call import EffectivePolicy
from actum.contract.egress import EgressPlan, plan_egress
from actum.sandbox.egress.doors import OWN_ADDRESS, RESOLVER, Doors
from actum.value import field, value

if TYPE_CHECKING:
    from actum.sandbox.egress.connections import Session
    from actum.sandbox.egress.relay import Relay
    from actum.sandbox.handle import Sandbox
    from actum.sandbox.wire import Report, Request

_SYSTEM_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def planned(policy: EffectivePolicy) -> EgressPlan | None:
    """The egress that a policy allows; ``None`` for none."""
    plan = plan_egress(policy.network)
    return None if plan.is_empty else plan


@value(frozen=False, kw_only=False)
class Egress:
    """The doors and the relay session; without doors for a policy without hosts."""

    doors: Doors | None
    authorities: str | None  #: PEM text that tools trust in addition to the system's
    session: Session | None = None
    _served: int = field(default=0)

    def described(self, request: Request) -> Request:
        """`request` with the addresses, listeners and files that the init must prepare."""
        if self.doors is None:
            return request
        etc = {
            "hosts": self.doors.hosts_file,
            "resolv.conf": f"nameserver {RESOLVER}\noptions timeout:5 attempts:1\n",
        }
        if self.authorities is not None:
            etc["ca.pem"] = _bundle(self.authorities)
        return {
            **request,
            "addresses": [OWN_ADDRESS, *self.doors.literals],
            "listen": [(address, port) for address, port, _ in self.doors.listeners],
            # Also where every name is in the hosts file: a refused name is recorded.
            "resolver": RESOLVER,
            "etc": etc,
        }

    def begin(self, relay: Relay, sandbox: Sandbox) -> None:
        if self.doors is not None:
            self.session = relay.open(self.doors, sandbox.ask_listeners)

    def on_doors(self, report: Report, descriptors: list[int]) -> None:
        """Sockets of the sandbox have arrived."""
        session, doors = self.session, self.doors
        if session is None or doors is None:
            raise AssertionError("a sandbox without egress passed sockets")
        if report["kind"] == "resolver":
            session.answer_names(*descriptors)
        elif "address" in report:
            session.arrived(report["address"], report["ports"], descriptors)
        else:
            known = doors.listeners[self._served : self._served + len(descriptors)]
            self._served += len(descriptors)
            session.listen(tuple(endpoint for _, _, endpoint in known), descriptors)

    def end(self) -> tuple[Connection, ...]:
        return () if self.session is None else self.session.close()


def _bundle(authorities: str) -> str:
    """The system's authorities and the project's own."""
    try:
        with open(_SYSTEM_BUNDLE) as file:
            return f"{file.read()}\n{authorities}"
    except FileNotFoundError:
        return authorities
