"""A small internet in network namespaces of this script's own, and a project in the middle of it.

Run by test_internal_addresses.py as `lab.py FOLDER`, in fresh net and mount namespaces. Here (A)
are the runtime, its relay and the only DNS server; across a veth (B) is one web server that has a
public address, the metadata address and addresses of private ranges. What was tried and what came
of it is printed as JSON.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from actum import Result
from actum.kernel import unshare
from actum.sandbox.egress import dns
from network.outside import Net, said

CLONE_NEWNET = 0x40000000
PUBLIC, OWN = "11.0.0.2", "11.0.0.1"
METADATA = "169.254.169.254"
INTERNAL = {
    "metadata.test": METADATA,
    "ten.test": "10.0.0.5",
    "oneseventwo.test": "172.16.0.9",
    "oneninetwo.test": "192.168.7.7",
    "carrier.test": "100.64.0.1",
    "benchmark.test": "198.18.9.9",
}
SIX = "fd00::5"
ANSWERS = {
    "public.test": [[PUBLIC]],
    "rebind.test": [[PUBLIC], [METADATA]],
    "mixed.test": [[PUBLIC, "10.0.0.5"]],
    "own.test": [[OWN]],
    "loop.test": [["127.0.0.1"]],
    "zero.test": [["0.0.0.0"]],
    **{name: [[address]] for name, address in INTERNAL.items()},
}
SIX_ANSWERS = {"six.test": [SIX], "mapped.test": ["::ffff:10.0.0.5"]}


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        redirect = self.path.startswith("/to/")
        self.send_response(302 if redirect else 200)
        if redirect:
            self.send_header("Location", self.path.removeprefix("/to/"))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class _Web(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


def other_side(ready: int, go: int) -> None:
    """Namespace B: one web server behind all addresses."""
    unshare(CLONE_NEWNET)
    os.write(ready, b"x")
    os.read(go, 1)
    run("ip", "link", "set", "v1", "up")
    run("ip", "addr", "add", f"{PUBLIC}/24", "dev", "v1")
    for address in INTERNAL.values():
        run("ip", "addr", "add", f"{address}/32", "dev", "v1")
    run("ip", "-6", "addr", "add", f"{SIX}/64", "dev", "v1", "nodad")
    server = _Web(("::", 80), _Page)
    os.write(ready, b"x")
    server.serve_forever()


def connect_sides() -> int:
    ready_read, ready = os.pipe()
    go, go_write = os.pipe()
    child = os.fork()
    if child == 0:
        other_side(ready, go)
        os._exit(0)
    os.read(ready_read, 1)
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(child))
    run("ip", "addr", "add", f"{OWN}/24", "dev", "v0")
    run("ip", "link", "set", "v0", "up")
    for address in INTERNAL.values():
        run("ip", "route", "add", f"{address}/32", "dev", "v0")
    run("ip", "-6", "addr", "add", "fd00::1/64", "dev", "v0", "nodad")
    os.write(go_write, b"x")
    os.read(ready_read, 1)
    return child


class Resolver:
    """The only DNS server there is; it remembers every question."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            packet, peer = self._socket.recvfrom(4_096)
            self._socket.sendto(self._reply(packet), peer)

    def _reply(self, packet: bytes) -> bytes:
        question = dns.parse(packet)
        assert question is not None
        name, addresses = question.name, []
        if question.wants_ipv4:
            before = self.asked.count(name)
            self.asked.append(name)
            rows = ANSWERS.get(name, [[PUBLIC]] if name not in SIX_ANSWERS else [[]])
            addresses = [socket.inet_aton(text) for text in rows[min(before, len(rows) - 1)]]
        elif question.kind == 28:
            addresses = [socket.inet_pton(socket.AF_INET6, t) for t in SIX_ANSWERS.get(name, [])]
        header = packet[:2] + b"\x81\x80\0\1" + len(addresses).to_bytes(2, "big") + bytes(4)
        records = b"".join(
            b"\xc0\x0c"
            + question.kind.to_bytes(2, "big")
            + b"\0\1\0\0\0\0"
            + len(address).to_bytes(2, "big")
            + address
            for address in addresses
        )
        return header + question.section + records


def fetch(*urls: str, options: str = "") -> str:
    """A script that prints the status of each page, 000 for one that cannot be had."""
    return "".join(
        f"curl -sS -m 5 {options} -o /dev/null -w '%{{http_code}}\\n' '{url}' || true\n"
        for url in urls
    )


def look_up(*names: str) -> str:
    """A script that prints the first address of each name, or `none`."""
    return "".join(
        f"a=$(getent ahostsv4 {name} | cut -d' ' -f1 | head -n1); echo ${{a:-none}}\n"
        for name in names
    )


def codes(result: Result, names: list[str]) -> dict[str, str]:
    return dict(zip(names, said(result), strict=True))


def story(result: Result) -> list[dict[str, Any]]:
    return list(result.document()["egress"])


def main(folder: Path) -> None:
    # With the mount namespace this is nobody else's resolv.conf.
    own = folder / "resolv.conf"
    own.write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
    run("mount", "--bind", str(own), "/etc/resolv.conf")
    child = connect_sides()
    resolver = Resolver()
    report: dict[str, Any] = {}

    direct = [*INTERNAL.values(), PUBLIC, f"[{SIX}]"]
    done = subprocess.run(
        ["/bin/sh"],
        input=fetch(*(f"http://{address}/" for address in direct)),
        capture_output=True,
        text=True,
        check=False,
    )
    report["direct"] = dict(zip(direct, done.stdout.split(), strict=True))

    names = [*ANSWERS, *SIX_ANSWERS]
    names.remove("rebind.test")
    net = Net(folder, hosts=[*names, "rebind.test", "*.wild.test"], outbound=("http",))
    result = net.ask(fetch(*(f"http://{name}/" for name in names)))
    report["names"] = {"codes": codes(result, names), "egress": story(result)}

    urls = ["http://rebind.test/"] * 2
    result = net.ask(fetch(*urls))
    report["rebinding"] = {"codes": said(result), "egress": story(result)}

    # The last status that came: 302 says that the next step led nowhere.
    targets = ["http://public.test/", f"http://{METADATA}/", f"http://{OWN}/", "http://127.0.0.1/"]
    targets.append(f"http://[{SIX}]/")
    result = net.ask(fetch(*(f"http://public.test/to/{each}" for each in targets), options="-L"))
    report["redirects"] = {"codes": said(result), "egress": story(result)}

    resolver.asked.clear()
    asked = ["good.wild.test", "wild.test", "secret-data.evil.test", "public.test.evil.test"]
    result = net.ask(fetch(*(f"http://{name}/" for name in asked)))
    report["wildcard"] = {
        "codes": codes(result, asked),
        "egress": story(result),
        "resolver": sorted(set(resolver.asked)),
    }
    net.close()

    resolver.asked.clear()
    asked = ["public.test", "good.wild.test", "ten.test", "mixed.test", "denied.wild.test"]
    asked += ["secret.evil.test", "wild.test"]
    hosts = ["public.test", "ten.test", "mixed.test", "*.wild.test"]
    script = look_up(*asked) + fetch("http://public.test/", f"http://{PUBLIC}/")
    for classes in (("dns",), ("http",)):
        named = Net(folder / classes[0], hosts=hosts, outbound=classes)
        result = named.ask(script, enabled=True, deny=["denied.wild.test"])
        report[classes[0]] = {
            "codes": codes(result, [*asked, "page", "address"]),
            "egress": story(result),
            "denials": [each.target for each in result.denials],
            "resolver": sorted(set(resolver.asked)),
        }
        resolver.asked.clear()
        named.close()

    opened = Net(folder / "open", hosts=["*"], outbound=("http",))
    names = ["anything.test", "other.example", "metadata.test", "loop.test"]
    script = fetch(*(f"http://{name}/" for name in names), f"http://{METADATA}/")
    refused = opened.ask(script, level="open")
    result = opened.run(script, level="open")
    report["open"] = {
        "without": list(refused.reason_codes),
        "codes": codes(result, [*names, METADATA]),
        "egress": story(result),
        "execution_id": result.execution_id,
    }
    opened.close()
    os.kill(child, 9)
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
