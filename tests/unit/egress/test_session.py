"""The relay's side of one execution, with real sockets and no sandbox around them."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from actum.capture.model import Connection
from actum.contract.call import NetworkPolicy
from actum.contract.egress import Address, plan_egress
from actum.sandbox.egress.bounds import Bounds
from actum.sandbox.egress.doors import Doors
from actum.sandbox.egress.relay import Relay

from .test_names import query


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Says everything back."""

    def serve(one: socket.socket) -> None:
        with one:
            while data := one.recv(65_536):
                one.sendall(data)

    def accept() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(one,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener
        listener.shutdown(socket.SHUT_RDWR)


class Inside:
    """What a sandbox would see: the places where its doors listen."""

    def __init__(self, relay: Relay, policy: NetworkPolicy) -> None:
        doors = Doors(plan_egress(policy))
        self.session = relay.open(doors, lambda address, ports: None)
        self.concurrency: list[tuple[str, int]] = []
        for _address, _port, endpoint in doors.listeners:
            listener = socket.create_server(("127.0.0.1", 0), backlog=512)
            self.concurrency.append(listener.getsockname())
            self.session.listen((endpoint,), [listener.detach()])

    def connect(self, number: int = 0) -> socket.socket:
        made = socket.create_connection(self.concurrency[number], 10)
        made.settimeout(10)
        return made

    def says(self, text: bytes, number: int = 0) -> bytes | None:
        """What comes back; ``None`` if the connection is refused."""
        try:
            with self.connect(number) as made:
                made.sendall(text)
                return made.recv(100)
        except ConnectionError:
            return None


@contextmanager
def inside(
    *allow: str, resolve: dict[str, str] | None = None, lookup: Any = None, **bounds: Any
) -> Iterator[Inside]:
    internal = bounds.pop("internal", ())
    deny = bounds.pop("deny", ())
    outbound = bounds.pop("outbound", ("http", "tcp"))
    policy = NetworkPolicy(
        enabled=True, allow=allow, deny=deny, outbound=outbound, internal=internal
    )
    relay = Relay(resolve or {}, Bounds(**bounds), **({"lookup": lookup} if lookup else {}))
    try:
        yield Inside(relay, policy)
    finally:
        relay.close()


def place(server: socket.socket) -> str:
    return "{}:{}".format(*server.getsockname())


def refused(found: tuple[Connection, ...]) -> list[str]:
    return [one.refused for one in found]


def is_cut(made: socket.socket) -> bool:
    """Whether the other side is gone, politely or not; waits until it is."""
    try:
        return made.recv(1) == b""
    except ConnectionResetError:
        return True


class Resolver:
    """Answers from a list, one entry per question, and counts."""

    def __init__(self, *answers: list[str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        return [ipaddress.ip_address(text) for text in answer]


def test_an_approved_place_is_connected_to_and_counted(server: socket.socket) -> None:
    resolve = {"a.test:80": place(server)}
    with inside("a.test", resolve=resolve, internal=("a.test:80",)) as world:
        assert world.says(b"hello") == b"hello"
        (made,) = world.session.close()
        assert (made.host, made.port, made.address) == ("a.test", 80, "127.0.0.1")
        assert (made.sent, made.received, made.refused) == (5, 5, "")


@pytest.mark.req("004-48")
def test_an_internal_place_that_nobody_approved_is_refused(server: socket.socket) -> None:
    resolve = {"a.test:80": place(server), "b.test:80": place(server)}
    with inside("a.test", "b.test", resolve=resolve, internal=("b.test:80",)) as world:
        assert world.says(b"hello", 0) is None
        assert world.says(b"hello", 1) == b"hello"
        first, second = world.session.close()
        assert first.refused.startswith("internal address 127.0.0.1")
        assert second.refused == ""


@pytest.mark.req("004-48")
@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["::1"]],
)
def test_every_answer_of_the_resolver_is_judged(answer: list[str]) -> None:
    resolver = Resolver(answer)
    with inside("a.test", lookup=resolver) as world:
        assert world.says(b"x") is None
        (found,) = world.session.close()
        assert found.refused.startswith("internal address")
    assert resolver.asked == ["a.test"]


@pytest.mark.req("004-48")
def test_each_connection_is_resolved_once_and_judged_anew(server: socket.socket) -> None:
    """Rebinding: what is connected to is the address that was judged, never the name again."""
    resolver = Resolver(["192.0.2.1"], ["127.0.0.1"], ["127.0.0.1"])
    with inside("a.test", lookup=resolver) as world:
        for number in range(1, 4):
            assert world.says(b"x") is None
            assert len(resolver.asked) == number
        assert all(text.startswith("internal") for text in refused(world.session.close()))


def test_a_literal_is_never_looked_up() -> None:
    resolver = Resolver(["8.8.8.8"])
    with inside("10.0.0.1:80", "[::1]:80", lookup=resolver) as world:
        assert world.says(b"x", 0) is None
        assert world.says(b"x", 1) is None
        assert all(text.startswith("internal") for text in refused(world.session.close()))
    assert resolver.asked == []


def test_a_denied_address_is_refused_also_by_an_approved_name(server: socket.socket) -> None:
    words: Any = {"internal": ("a.test:80",), "deny": ("127.0.0.1",)}
    with inside("a.test", resolve={"a.test:80": place(server)}, **words) as world:
        assert world.says(b"x") is None
        assert refused(world.session.close()) == ["address 127.0.0.1 denied"]


@pytest.mark.req("004-48")
@pytest.mark.parametrize(
    "answer",
    ["::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "::127.0.0.1"],
)
@pytest.mark.parametrize("denied", ["127.0.0.1", "127.0.0.1:80", "[::FFFF:7f00:1]"])
def test_a_denied_address_is_refused_in_every_form_of_it(answer: str, denied: str) -> None:
    words: Any = {"internal": ("a.test:80",), "deny": (denied,), "lookup": Resolver([answer])}
    with inside("a.test", **words) as world:
        assert world.says(b"x") is None
        (text,) = refused(world.session.close())
        assert text.endswith(" denied")


@pytest.mark.parametrize("denied", ["[2001:DB8:0::1]", "2001:db8::0:1"])
def test_a_denied_address_may_be_spelt_in_another_way(denied: str) -> None:
    plan = plan_egress(
        NetworkPolicy(enabled=True, allow=("*",), deny=(denied,), outbound=("http",))
    )
    assert plan.denies_address(ipaddress.ip_address("2001:db8::1"), 80)
    assert not plan.denies_address(ipaddress.ip_address("2001:db8::2"), 80)


def test_an_address_that_is_written_as_ipv6_is_reached_and_recorded_as_ipv4(
    server: socket.socket,
) -> None:
    port = server.getsockname()[1]
    words: Any = {"internal": (f"a.test:{port}",), "deny": ("127.0.0.1:1", "127.0.0.2")}
    with inside(f"a.test:{port}", lookup=Resolver(["::ffff:127.0.0.1"]), **words) as world:
        assert world.says(b"hello") == b"hello"
        (made,) = world.session.close()
        assert (made.address, made.refused) == ("127.0.0.1", "")


@pytest.mark.parametrize("error", [OSError(5, "no answer"), UnicodeError("label too long")])
def test_a_name_that_cannot_be_resolved_is_refused_and_recorded(error: Exception) -> None:
    async def lookup(host: str, port: int) -> list[Address]:
        raise error

    with inside("a.test", lookup=lookup) as world:
        assert world.says(b"x") is None
        (text,) = refused(world.session.close())
        assert text.startswith("name not resolved")


def test_a_place_where_nobody_listens_is_refused_and_recorded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = place(gone)
    with inside("a.test", resolve={"a.test:80": nowhere}, internal=("a.test:80",)) as world:
        assert world.says(b"x") is None
        (text,) = refused(world.session.close())
        assert text.startswith("not connected")


def test_an_end_of_writing_is_passed_on_and_the_answer_still_comes() -> None:
    def answer_after_the_end(listener: socket.socket) -> None:
        one, _ = listener.accept()
        with one:
            total = 0
            while data := one.recv(65_536):
                total += len(data)
            one.sendall(str(total).encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_after_the_end, args=(listener,))
        thread.start()
        resolve = {"a.test:80": place(listener)}
        with inside("a.test", resolve=resolve, internal=("a.test:80",)) as world:
            with world.connect() as made:
                made.sendall(bytes(1_000_000))
                made.shutdown(socket.SHUT_WR)
                assert made.recv(100) == b"1000000"
            world.session.close()
        thread.join()


def test_a_reset_outside_is_a_broken_connection_inside(server: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        resolve = {"a.test:80": place(listener)}
        with inside("a.test", resolve=resolve, internal=("a.test:80",)) as world:
            with world.connect() as made:
                peer, _ = listener.accept()
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
                assert is_cut(made)
            world.session.close()


def test_closing_cuts_every_connection_and_leaves_no_descriptor(server: socket.socket) -> None:
    resolve = {"a.test:80": place(server)}
    with inside("a.test", resolve=resolve, internal=("a.test:80",)) as world:
        assert world.says(b"first") == b"first"  # the loop's own descriptors exist from here on
        before = len(os.listdir("/proc/self/fd"))
        held = [world.connect() for _ in range(20)]
        for each in held:
            each.sendall(b"x")
            assert each.recv(1) == b"x"
        found = world.session.close()
        assert len(found) == 21
        for each in held:
            with each:
                assert is_cut(each)
        until = time.monotonic() + 10
        # The listener is closed too; the echo server lets go when it sees the end.
        while len(os.listdir("/proc/self/fd")) >= before and time.monotonic() < until:
            time.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) < before


def test_sockets_that_arrive_after_the_end_are_closed() -> None:
    with inside("a.test", "b.test") as world:
        world.session.close()
        late = socket.create_server(("127.0.0.1", 0))
        name = late.getsockname()
        world.session.listen(world.session.doors.plan.endpoints[:1], [late.detach()])
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(name, 1).close()
            except ConnectionResetError:
                continue  # it was in the queue of the listener as that was closed
            except ConnectionRefusedError:
                break
            time.sleep(0.01)
        else:
            pytest.fail("the listener stayed open")


def test_two_sessions_of_one_relay_do_not_see_each_other(server: socket.socket) -> None:
    relay = Relay({"a.test:80": place(server)})
    policies = [
        NetworkPolicy(
            enabled=True, allow=("a.test",), deny=(), outbound=("http", "tcp"), internal=internal
        )
        for internal in (("a.test:80",), ())
    ]
    one, other = (Inside(relay, policy) for policy in policies)
    assert one.says(b"x") == b"x"
    assert other.says(b"x") is None
    assert refused(one.session.close()) == [""]
    assert one.says(b"x") is None
    assert len(other.session.close()) == 1
    relay.close()


def test_connections_beyond_the_bound_are_reset_and_told(server: socket.socket) -> None:
    words: Any = {"internal": ("a.test:80",), "connections": 3}
    with inside("a.test", resolve={"a.test:80": place(server)}, **words) as world:
        assert [world.says(b"x") for _ in range(5)] == [b"x", b"x", b"x", None, None]
        found = world.session.close()
        assert world.session.tripped
        assert refused(found) == ["", "", "", "2 more attempts, not listed"]


def test_bytes_beyond_the_bound_break_the_connection(server: socket.socket) -> None:
    words: Any = {"internal": ("a.test:80",), "bytes": 100}
    with inside("a.test", resolve={"a.test:80": place(server)}, **words) as world:
        assert world.says(b"x" * 40) == b"x" * 40
        with world.connect() as made:
            made.sendall(b"x" * 40)
            assert is_cut(made)
        assert world.session.tripped
        assert sum(one.sent + one.received for one in world.session.close()) <= 100


class NameService:
    """The two sockets that the init would bind, and clients for them."""

    def __init__(self, relay: Relay, *allow: str) -> None:
        policy = NetworkPolicy(enabled=True, allow=allow, deny=(), outbound=("http",))
        self.session = relay.open(Doors(plan_egress(policy)), lambda address, ports: None)
        datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagram.bind(("127.0.0.1", 0))
        stream = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.datagrams, self.streams = datagram.getsockname(), stream.getsockname()
        self.session.answer_names(datagram.detach(), stream.detach())

    def ask(self, packet: bytes) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(10)
            client.sendto(packet, self.datagrams)
            return client.recv(512)

    def stream(self) -> socket.socket:
        made = socket.create_connection(self.streams, 10)
        made.settimeout(10)
        return made


def test_the_name_service_answers_datagrams_and_streams() -> None:
    relay = Relay()
    service = NameService(relay, "a.test")
    assert service.ask(query("a.test"))[-4:] == socket.inet_aton("198.18.1.0")
    with service.stream() as made:
        for _ in range(2):
            packet = query("evil.test")
            made.sendall(struct.pack("!H", len(packet)) + packet)
            reply = made.recv(512)
            assert reply[2:4] == packet[:2]
            assert reply[5] & 0xF == 3
    assert [one.host for one in service.session.close()] == ["evil.test"]
    relay.close()


def test_a_slow_client_of_the_name_service_is_let_go() -> None:
    relay = Relay(bounds=Bounds(idle_names_s=0.1))
    service = NameService(relay, "a.test")
    with service.stream() as made:
        made.sendall(b"\0")
        assert is_cut(made)
    service.session.close()
    relay.close()


def test_clients_of_the_name_service_are_bounded() -> None:
    relay = Relay(bounds=Bounds(name_streams=3))
    service = NameService(relay, "a.test")
    packet = query("a.test")
    held = [service.stream() for _ in range(3)]
    for made in held:
        made.sendall(struct.pack("!H", len(packet)) + packet)
        assert made.recv(512)
    with service.stream() as refused_one:
        assert is_cut(refused_one)
    held.pop().close()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with service.stream() as made:
            made.sendall(struct.pack("!H", len(packet)) + packet)
            if not is_cut(made):
                break
    else:
        pytest.fail("a place that became free was not given away")
    for made in held:
        made.close()
    service.session.close()
    relay.close()
