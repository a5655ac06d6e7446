"""A proxy in front of Redis that does to clients what networks do, but on command.

It reads the protocol in both directions, so it knows which reply answers which command:

    with Proxy(redis_url) as proxy:
        fault = proxy.swallow_reply("EVALSHA")       # Redis runs it, the client sees its connection closed
        fault = proxy.swallow_reply("EVALSHA", then="silence")      # … or hears nothing more
        fault = proxy.drop_command("EVALSHA")        # Redis never sees it, the client sees its connection closed
        fault = proxy.hold_reply("XREAD")            # the reply waits for fault.release()
        fault.wait()                                 # until it has struck
        proxy.cut("to_client"); proxy.heal()         # bytes stop in one direction, later go on (nothing is lost)
        proxy.refuse(); proxy.accept()               # connections are closed and refused; welcome again
        proxy.delay_ms = 20                          # every chunk, both ways

A match is a command's name or a function of its words. Commands are paired with replies in order; pushes of RESP3 pass
through. (P)SUBSCRIBE and MONITOR, where one command has many replies, are not supported.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

Words = list[bytes]
Match = str | Callable[[Words], bool]
Direction = Literal["to_server", "to_client"]
_CHUNK = 64 * 1024


class Frames:
    """Cuts a byte stream into whole RESP values (2 or 3), or inline commands."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        # for each aggregate around the current element: how many are still to come
        self._open: list[int] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add what came; yields each complete frame, byte for byte."""
        self._buffer += data
        while (end := self._element()) is not None:
            self._at = end
            if not self._open:
                yield bytes(self._buffer[:end])
                del self._buffer[:end]
                self._at = 0

    def _element(self) -> int | None:
        """Step over one element (an aggregate's head counts as one). Returns its end, None when more must come."""
        line_end = self._buffer.find(b"\r\n", self._at)
        if line_end < 0:
            return None
        kind, end = bytes(self._buffer[self._at : self._at + 1]), line_end + 2
        if kind in (b"$", b"=", b"!"):
            length = int(self._buffer[self._at + 1 : line_end])
            if length >= 0:
                end += length + 2
                if len(self._buffer) < end:
                    return None
        elif kind in (b"*", b"~", b">", b"%", b"|"):
            count = int(self._buffer[self._at + 1 : line_end])
            if kind in (b"%", b"|"):
                count *= 2
            if kind == b"|":
                count += 1  # attributes come before the value they belong to
            if count > 0:
                self._open.append(count)
                return end
        while self._open:
            self._open[-1] -= 1
            if self._open[-1]:
                break
            self._open.pop()
        return end


def words(frame: bytes) -> Words:
    """The words of a command as a client sent it."""
    if not frame.startswith(b"*"):
        return frame.split()
    found: Words = []
    at = frame.index(b"\r\n") + 2
    while at < len(frame):
        line_end = frame.index(b"\r\n", at)
        length = int(frame[at + 1 : line_end])
        found.append(frame[line_end + 2 : line_end + 2 + length])
        at = line_end + 2 + length + 2
    return found


class Fault:
    """One fault that was ordered: strikes the next `times` matching commands."""

    def __init__(self, match: Match, kind: str, then: str, times: int) -> None:
        self._match = match
        self.kind = kind
        self.then = then
        self._left = times
        self._struck = threading.Condition()
        self._released = threading.Event()
        self.commands: list[Words] = []
        """The commands it struck, in order."""

    def claims(self, command: Words) -> bool:
        """Whether this command is to be struck; counts it."""
        with self._struck:
            if not self._left or not command:
                return False
            if isinstance(self._match, str):
                if command[0].upper() != self._match.upper().encode():
                    return False
            elif not self._match(command):
                return False
            self._left -= 1
            return True

    def strike(self, command: Words) -> None:
        """Say that it has happened: Redis has answered (or the command was dropped)."""
        with self._struck:
            self.commands.append(command)
            self._struck.notify_all()

    def wait(self, times: int = 1, timeout_s: float = 30) -> None:
        """Wait until it has struck `times` commands: Redis has run them. Raises TimeoutError."""
        with self._struck:
            if not self._struck.wait_for(lambda: len(self.commands) >= times, timeout_s):
                raise TimeoutError(f"no such command came within {timeout_s} s")

    @property
    def struck(self) -> int:
        """How many commands it has struck."""
        with self._struck:
            return len(self.commands)

    def release(self) -> None:
        """Let held replies go."""
        self._released.set()

    def hold(self, closing: threading.Event) -> None:
        """Wait for release()."""
        while not self._released.wait(0.05) and not closing.is_set():
            pass

    def cancel(self) -> None:
        """Strike no more, and let go what is held."""
        with self._struck:
            self._left = 0
        self._released.set()


class _Link:
    """One client's connection and the one behind it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.pending: deque[tuple[Words, Fault | None]] = deque()
        self.silent = False
        self.closing = threading.Event()
        self.threads = [
            threading.Thread(target=self._run, args=(self._to_server,), daemon=True, name="proxy-to-server"),
            threading.Thread(target=self._run, args=(self._to_client,), daemon=True, name="proxy-to-client"),
        ]

    def close(self) -> None:
        self.closing.set()
        for side in (self.client, self.server):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was closed already

    def _run(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except OSError:
            pass  # one of the two sides has gone; so does the other
        finally:
            self.close()
            self.proxy._ended(self)

    def _to_server(self) -> None:
        frames = Frames()
        while data := self.client.recv(_CHUNK):
            self._pause("to_server")
            for frame in frames.feed(data):
                command = words(frame)
                fault = self.proxy._fault_for(command)
                if fault is not None and fault.kind == "drop":
                    fault.strike(command)
                    if fault.then == "close":
                        return
                    continue
                self.pending.append((command, fault))
                self.server.sendall(frame)

    def _to_client(self) -> None:
        frames = Frames()
        while data := self.server.recv(_CHUNK):
            for frame in frames.feed(data):
                if not frame.startswith(b">"):
                    command, fault = self.pending.popleft()
                    if fault is not None:
                        fault.strike(command)
                        if fault.kind == "hold":
                            fault.hold(self.closing)
                        elif fault.then == "close":
                            return
                        else:
                            self.silent = True
                self._pause("to_client")
                if not self.silent:
                    self.client.sendall(frame)

    def _pause(self, direction: Direction) -> None:
        if self.proxy.delay_ms:
            self.closing.wait(self.proxy.delay_ms / 1000)
        gate = self.proxy._gates[direction]
        while not gate.wait(0.05) and not self.closing.is_set():
            pass


class Proxy:
    """Stands before the Redis at `upstream_url` (`unix://` or `redis://`); clients use `url`."""

    def __init__(self, upstream_url: str, *, unix_socket: bool = False) -> None:
        self._upstream = urlsplit(upstream_url)
        self._folder = tempfile.TemporaryDirectory(prefix="timerq-proxy-") if unix_socket else None
        self._port = 0
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._faults: list[Fault] = []
        self._acceptor: threading.Thread | None = None
        self._gates = {"to_server": threading.Event(), "to_client": threading.Event()}
        self.delay_ms = 0
        self.seen: deque[Words] = deque(maxlen=10_000)
        """The last commands that came, for tests that count them."""
        self.heal()

    @property
    def url(self) -> str:
        """Where clients connect."""
        if self._folder is not None:
            return f"unix://{quote(self._folder.name)}/proxy.sock?{self._upstream.query or 'db=0'}"
        return f"redis://127.0.0.1:{self._port}{self._upstream.path if self._upstream.scheme != 'unix' else '/0'}"

    @property
    def port(self) -> int:
        """The loopback port it listens on; 0 when it stands on a unix socket."""
        return self._port

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        with self._lock:
            return len(self._links)

    # ------------------------------------------------------------------------------------------- faults

    def swallow_reply(
        self, match: Match, *, then: Literal["close", "silence"] = "close", times: int = 1
    ) -> Fault:
        """Redis runs the command, but its reply never arrives: the connection closes, or falls silent for good."""
        return self._order(Fault(match, "swallow", then, times))

    def drop_command(
        self, match: Match, *, then: Literal["close", "silence"] = "close", times: int = 1
    ) -> Fault:
        """The command never reaches Redis: the connection closes, or nothing happens."""
        return self._order(Fault(match, "drop", then, times))

    def hold_reply(self, match: Match, *, times: int = 1) -> Fault:
        """Redis runs the command; its reply waits until `release()`."""
        return self._order(Fault(match, "hold", "go on", times))

    def cut(self, *directions: Direction) -> None:
        """Stop the bytes in these directions (by default both), with the connections left open."""
        for direction in directions or ("to_server", "to_client"):
            self._gates[direction].clear()

    def heal(self) -> None:
        """End every cut; what was on its way arrives now."""
        for gate in self._gates.values():
            gate.set()

    def refuse(self) -> None:
        """Close every connection and refuse new ones."""
        self._stop_listening()
        self.close_connections()

    def accept(self) -> None:
        """Welcome connections again, at the same address."""
        if self._listener is None:
            self._listen()

    def close_connections(self) -> None:
        """Close the connections that are open now."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()
        for link in links:
            for thread in link.threads:
                if thread is not threading.current_thread():
                    thread.join(10)

    # ------------------------------------------------------------------------------------------- life

    def start(self) -> Proxy:
        """Begin to listen."""
        self._listen()
        return self

    def stop(self) -> None:
        """Close everything; waits for its threads."""
        for fault in self._faults:
            fault.cancel()
        self.refuse()
        self.heal()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Proxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------- how

    def _order(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def _fault_for(self, command: Words) -> Fault | None:
        with self._lock:
            self.seen.append(command)
            faults = list(self._faults)
        return next((fault for fault in faults if fault.claims(command)), None)

    def _listen(self) -> None:
        if self._folder is not None:
            path = Path(self._folder.name, "proxy.sock")
            path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(path))
        else:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            self._port = listener.getsockname()[1]
        listener.listen(128)
        self._listener = listener
        self._acceptor = threading.Thread(
            target=self._accept_all, args=(listener,), daemon=True, name="proxy-acceptor"
        )
        self._acceptor.start()

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        try:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept() on Linux
        except OSError:
            pass  # elsewhere it is refused, and close() wakes it
        listener.close()
        if self._acceptor is not None:
            self._acceptor.join(10)

    def _accept_all(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = self._connect_upstream()
            except OSError:
                client.close()  # Redis is away: so are we
                continue
            if client.family == socket.AF_INET:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(self, client, server)
            with self._lock:
                self._links.add(link)
            for thread in link.threads:
                thread.start()
            if self._listener is not listener:
                link.close()

    def _connect_upstream(self) -> socket.socket:
        if self._upstream.scheme == "unix":
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                server.connect(unquote(self._upstream.path))
            except OSError:
                server.close()
                raise
            return server
        server = socket.create_connection((self._upstream.hostname, self._upstream.port or 6379), timeout=10)
        server.settimeout(None)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    def _ended(self, link: _Link) -> None:
        """A link's thread has ended; the last of the two closes the sockets."""
        with self._lock:
            if link not in self._links:
                for side in (link.client, link.server):
                    side.close()
            self._links.discard(link)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    """Wait until a condition holds that gives no signal, such as a count kept by Redis. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(0.005)
