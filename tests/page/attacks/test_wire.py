"""Garbage, half requests, endless bodies, foreign hosts, guesses: the page stays up, memory returns."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time

import pytest

from entrypoint.status.access import GUESSES
from entrypoint.status.connections import HEAD_S, MOST
from tests.main.kits.boxes import Box, boxes
from tests.page.asking import BEARER, SECRET, TOKEN, client, rpc
from tests.page.attacks.wire import connect, fresh_address, get, open_files, rss_mib, send, status_of, well

SPARE_MIB = 16
HANDSHAKE = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module", autouse=True)
def memory_returns(box: Box) -> object:
    """What all attacks of this module leave behind: no descriptors, and no more memory than a warm allocator keeps."""
    client_info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    assert rpc(box.lan, "initialize", client_info, HANDSHAKE).status_code == 200  # the SDK is loaded: that is no leak
    rpc(box.lan, "tools/list")
    for _ in range(50):
        get(box, "/", fresh_address())
    before, files = rss_mib(box), open_files(box)
    yield
    until = time.monotonic() + 15
    while open_files(box) > files + 2 and time.monotonic() < until:
        time.sleep(0.2)
    assert open_files(box) <= files + 2
    assert rss_mib(box) < before + SPARE_MIB
    well(box)


def fuzz(box: Box, count: int, seed: int) -> None:
    """Requests that are nearly right, and some that are not at all."""
    chance = random.Random(seed)
    source = ""
    for number in range(count):
        if number % 100 == 0:
            source = fresh_address()
        kind = chance.randrange(6)
        noise = chance.randbytes(chance.choice([1, 10, 200, 5000]))
        if kind == 0:
            data = noise
        elif kind == 1:
            data = b"GET /" + noise + b" HTTP/1.1\r\nHost: " + box.lan.encode() + b"\r\n\r\n"
        elif kind == 2:
            name = bytes(chance.choices(b"abcXYZ-_:\t \x00\xff", k=chance.randint(1, 300)))
            data = b"GET / HTTP/1.1\r\nHost: " + box.lan.encode() + b"\r\n" + name + b": " + noise + b"\r\n\r\n"
        elif kind == 3:
            many = b"".join(b"X-%d: y\r\n" % line for line in range(chance.choice([10, 500, 5000])))
            data = b"GET / HTTP/1.1\r\nHost: " + box.lan.encode() + b"\r\n" + many + b"\r\n"
        elif kind == 4:
            length = chance.choice([b"-1", b"0x10", b"99999999999999999999", b"5, 6", b"", b"\xb2"])
            data = b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: " + length + b"\r\n\r\n" + noise
        else:
            chunk = chance.choice([b"ffffffffffff", b"-5", b"zz", b"5;" + noise.hex().encode()])
            data = (
                b"POST /mcp HTTP/1.1\r\nHost: " + box.lan.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk
            )
        answer = send(box, data, source, timeout_s=3, half=True)
        assert status_of(answer) != 500, (data[:200], answer[:300])
        assert b"Traceback" not in answer


def mutate(chance: random.Random, depth: int = 0) -> object:
    """A JSON value nobody asked for."""
    leaves: list[object] = [None, True, -1, 2**70, 1e308, "", "\ud800", "a" * 500, "\0", "__proto__", "tools/call"]
    kind = chance.randrange(4 if depth < 4 else 2)
    if kind < 2:
        return chance.choice(leaves)
    if kind == 2:
        return [mutate(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    keys = ["jsonrpc", "id", "method", "params", "name", "arguments", "node", "cursor", "path", "x"]
    return {chance.choice(keys): mutate(chance, depth + 1) for _ in range(chance.randint(0, 5))}


def fuzz_json(box: Box, count: int, seed: int) -> None:
    """JSON-RPC whose parts are replaced one by one; every answer is JSON, none is a failure of ours."""
    chance = random.Random(seed)
    tools = ["node_status", "read_log", "find_files", "plan", "evidence", "serve_args", "metrics"]
    with client() as asking:
        for number in range(count):
            if number % 150 == 0:
                asking.close()
                asking = client(transport=None)
            told: object = {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": chance.choice(tools), "arguments": {"path": "x", "cursor": 0}},
            }
            where = told
            for _ in range(chance.randint(0, 2)):
                where = chance.choice([value for value in where.values() if isinstance(value, dict)] or [where])  # type: ignore[attr-defined]
            where[chance.choice([*where, "new"])] = mutate(chance)  # type: ignore[index,misc]
            if chance.random() < 0.1:
                told = mutate(chance)
            headers = {"Content-Type": "application/json", **BEARER}
            if chance.random() < 0.4:  # the SDK's own entry
                version = chance.choice(["2025-06-18", "2026-07-28", "1", "2025-11-25", ""])
                headers |= {**HANDSHAKE, "MCP-Protocol-Version": version}
            answer = asking.post(f"http://{box.lan}:8082/mcp", content=json.dumps(told), headers=headers)
            if answer.status_code == 429:
                time.sleep(1)
                continue
            by_sdk = "MCP-Protocol-Version" in headers
            assert answer.status_code in ((200, 202, 400, 404, 406) if by_sdk else (200, 202, 400)), (told, answer.text)
            if answer.status_code != 202 and answer.content:
                found = json.loads(answer.content, parse_constant=lambda text: pytest.fail(text))
                assert found["jsonrpc"] == "2.0"
                assert "failed inside" not in answer.text, (told, answer.text)


def test_garbage_is_answered_or_closed(box: Box) -> None:
    fuzz(box, 300, 1)
    well(box)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_much_garbage_is_answered_or_closed(box: Box) -> None:
    fuzz(box, 5000, 2)
    well(box)


def test_json_nobody_asked_for(box: Box) -> None:
    fuzz_json(box, 150, 3)
    well(box)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_much_json_nobody_asked_for(box: Box) -> None:
    fuzz_json(box, 5000, 4)
    well(box)


def test_half_requests_of_five_hundred_sockets_keep_nobody_out(box: Box) -> None:
    """Half of them from one address, half from as many addresses."""
    held: list[socket.socket] = []
    one = fresh_address()
    try:
        for number in range(500):
            with contextlib.suppress(OSError):
                wire = connect(box, one if number % 2 else fresh_address())
                wire.sendall(b"GET / HTTP/1.1\r\nHost: ")
                held.append(wire)
        until = time.monotonic() + 3
        while open_files(box) > MOST + 60 and time.monotonic() < until:
            time.sleep(0.05)
        assert open_files(box) <= MOST + 60
        began = time.monotonic()
        for _ in range(20):
            well(box)
        assert (time.monotonic() - began) / 20 < 1
        end = time.monotonic() + HEAD_S + 5
        for wire in held:  # a byte now and then buys no time
            with contextlib.suppress(OSError):
                wire.sendall(b"1")
        for wire in held:
            wire.settimeout(max(0.1, end - time.monotonic()))
            with contextlib.suppress(ConnectionError):
                assert wire.recv(1000) == b""
    finally:
        for wire in held:
            wire.close()


def test_slow_bodies_are_given_up(box: Box) -> None:
    head = f"POST /mcp HTTP/1.1\r\nHost: {box.lan}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    held = [connect(box, fresh_address(), 20) for _ in range(12)]
    try:
        for wire in held:
            wire.sendall(head.encode() + b"{")
        answers = {status_of(wire.recv(1000)) for wire in held}
        assert answers == {408, 503}  # eight were waited for, the rest sent away at once
        well(box)
    finally:
        for wire in held:
            wire.close()


@pytest.mark.parametrize("path", ["/mcp", "/login", "/", "/healthz", "/logs"])
@pytest.mark.parametrize("chunked", [False, True])
def test_two_hundred_megabytes_are_not_read(box: Box, path: str, chunked: bool) -> None:
    size = 200 * 10**6
    head = f"POST {path} HTTP/1.1\r\nHost: {box.lan}\r\nContent-Type: application/json\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n" if chunked else f"Content-Length: {size}\r\n\r\n"
    block = bytes(10**6)
    piece = b"f4240\r\n" + block + b"\r\n" if chunked else block
    before = rss_mib(box)
    sent, answer = 0, b""
    with connect(box, fresh_address()) as wire:
        with contextlib.suppress(OSError):  # closed on us, as it should be
            wire.sendall(head.encode())
            while sent < size:
                wire.sendall(piece)
                sent += len(block)
        with contextlib.suppress(OSError):
            answer = wire.recv(4000)
    assert sent < 20 * 10**6
    assert status_of(answer) in (0, 405, 413)  # 0: the reset overtook the answer
    assert rss_mib(box) < before + SPARE_MIB


def test_a_reader_that_does_not_read_holds_no_memory(box: Box) -> None:
    before = rss_mib(box)
    held = []
    for _ in range(40):
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        wire.settimeout(5)
        wire.bind((fresh_address(), 0))
        wire.connect((box.lan, 8082))
        wire.sendall(f"GET /status.json HTTP/1.1\r\nHost: {box.lan}\r\n\r\n".encode() * 20)
        held.append(wire)
    well(box)
    assert rss_mib(box) < before + SPARE_MIB
    for wire in held:
        wire.close()


def still_open(wire: socket.socket) -> bool:
    """Take what has come; False once the other side has closed."""
    wire.setblocking(False)
    try:
        while wire.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_readers_of_events_that_do_not_read_are_few_and_end(box: Box) -> None:
    ask = f"GET /events HTTP/1.1\r\nHost: {box.lan}\r\n\r\n".encode()
    held = []
    try:
        for _ in range(60):
            wire = connect(box, fresh_address())
            wire.sendall(ask)
            held.append(wire)
        until = time.monotonic() + 10
        while sum(map(still_open, held)) > 32:
            assert time.monotonic() < until
            time.sleep(0.2)
        well(box)
    finally:
        for wire in held:
            wire.close()
    until = time.monotonic() + 20  # a reader who has gone is noticed at the next event at the latest
    while status_of(send(box, ask, fresh_address(), 5, most=100)) != 200:
        assert time.monotonic() < until
        time.sleep(0.5)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8082", "127.0.0.1.evil.example", "localhost.evil.example"),
        *("127.0.0.1@evil.example", "evil.example#127.0.0.1", "2130706433", "0x7f000001", "127.1", "", "[::1"),
    ],
)
def test_a_rebound_name_gets_nothing(box: Box, host: str) -> None:
    for path in ("/", "/status.json", "/mcp", "/logs", "/healthz", "/login"):
        answer = get(box, path, fresh_address(), Host=host)
        assert status_of(answer) in (400, 421), (host, path, answer[:200])
        assert b"stages" not in answer


def test_two_hosts_and_foreign_pages_get_nothing(box: Box) -> None:
    twice = f"GET /status.json HTTP/1.1\r\nHost: {box.lan}\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert status_of(send(box, twice.encode())) == 400
    with client() as asking:
        for origin in ("http://evil.example", "null", f"http://{box.lan}:8083", f"http://{box.lan}.evil.example:8082"):
            for path in ("/status.json", "/mcp", "/logs"):
                answer = asking.get(f"http://{box.lan}:8082{path}", headers={"Origin": origin, **BEARER})
                assert answer.status_code == 403
                assert "access-control-allow-origin" not in answer.headers
        answer = asking.options(f"http://{box.lan}:8082/mcp", headers={"Access-Control-Request-Method": "POST"})
        assert answer.status_code == 405
        form = asking.post(f"http://{box.lan}:8082/mcp", content=b"{}", headers={"Content-Type": "text/plain"})
        assert form.status_code == 415
        own = asking.get(f"http://{box.lan}:8082/status.json", headers={"Origin": f"http://{box.lan}:8082"})
        assert own.status_code == 200


def test_guesses_are_few_and_the_others_are_not_locked_out(box: Box) -> None:
    source = fresh_address()
    for number in range(GUESSES):
        assert status_of(get(box, "/logs", source, Authorization=f"Bearer guess-{number}")) == 401
    assert status_of(get(box, "/logs", source, **BEARER)) == 429
    assert status_of(get(box, "/logs", fresh_address(), **BEARER)) == 200
    assert status_of(get(box, "/healthz", source)) == 503  # what needs no token goes on


def test_more_than_its_share_is_refused_to_one_address_alone(box: Box) -> None:
    source = fresh_address()
    seen = {status_of(get(box, "/healthz", source)) for _ in range(600)}
    assert seen == {429, 503}
    well(box)


def test_secrets_are_on_no_page(box: Box) -> None:
    for path in ("/", "/status.json", "/healthz", "/logs", "/login", "/member.json?nonce=" + "0" * 32, "/nonce.json"):
        text = get(box, path, fresh_address()).decode(errors="replace")
        assert TOKEN not in text
        assert SECRET not in text
    assert TOKEN not in box.log()
    assert SECRET not in box.log()


def test_a_page_that_the_other_boxes_cannot_reach_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with boxes(tmp_path_factory.mktemp("bound"), 1, 2, ON_REFUSAL="exit") as (one,):
        one.start(STATUS_BIND="127.0.0.1", STATUS_PORT="8197")
        assert one.process is not None
        assert one.process.wait(20) == 2
        assert "STATUS_BIND: seen 127.0.0.1" in one.log()
