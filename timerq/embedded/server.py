"""EmbeddedRedis: one redis-server child, from start to end."""

from __future__ import annotations

import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Literal
from urllib.parse import quote

from timerq.embedded import watcher as watcher_program
from timerq.embedded.find import find_server, identify, runnable
from timerq.errors import InvalidSchedule, QueueUnavailable

_LOOPBACK = "127.0.0.1"
_SOCKET_PATH_MAX_BYTES = 100  # the kernel's limit is 108 on Linux, 104 on macOS, its end mark included
_GRACE_MS = 5_000
_LOCK_NAME = "timerq.lock"
_LOG_NAME = "redis.log"
_SOCKET_NAME = "redis.sock"


class EmbeddedRedis:
    """A redis-server child process; a context manager that starts and stops it.

    - `data_dir`: keep the data there (append-only file), so that it survives a restart. None: keep nothing; a
      temporary folder holds the socket and the log, and is removed by `stop()`.
    - `port`: listen on this loopback port; 0 chooses a free one. None: no TCP.
    - `unix_socket`: listen on a unix socket (perms 700). By default only when no `port` is given.
    - `appendfsync`: with a data folder, when Redis syncs to disk: `"everysec"`, or `"always"` before it answers.
    - `server`: the program to run; by default `find_server()` chooses.
    - `config`: more redis.conf directives, as `{"maxmemory": "64mb"}`; they win over the ones set here.
    - `start_timeout_ms`: how long loading may take before `start()` gives up.

    The server ends with this process, also when this process is killed with SIGKILL. Every failure raises
    QueueUnavailable with what the server said; a port that cannot be one, InvalidSchedule.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        unix_socket: bool | None = None,
        appendfsync: Literal["everysec", "always"] = "everysec",
        server: str | os.PathLike[str] | None = None,
        config: Mapping[str, str] | None = None,
        start_timeout_ms: int = 60_000,
    ) -> None:
        if port is not None and not 0 <= port <= 65_535:
            raise InvalidSchedule("port", port, "give a port from 1 to 65535, or 0 for a free one")
        self._data_dir = None if data_dir is None else Path(data_dir).expanduser().absolute()
        self._wants_socket = port is None if unix_socket is None else unix_socket
        self._chosen_port = 0 if port is None and not self._wants_socket else port
        self._port = self._chosen_port or 0
        self._appendfsync = appendfsync
        self._server = None if server is None else runnable(server, "server")
        self._config = dict(config or {})
        self._start_timeout_ms = start_timeout_ms
        self._temp: tempfile.TemporaryDirectory[str] | None = None
        self._socket: Path | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._identity: tuple[str, str] | None = None

    # ------------------------------------------------------------------------------------------- what it is

    @property
    def url(self) -> str:
        """Where clients connect: `unix:///…/redis.sock?db=0`, or `redis://127.0.0.1:PORT/0` without a socket."""
        if self._socket is not None:
            return f"unix://{quote(str(self._socket))}?db=0"
        return self.tcp_url

    @property
    def tcp_url(self) -> str:
        """`redis://127.0.0.1:PORT/0`. Raises QueueUnavailable when it listens on no port or was never started."""
        if not self._port:
            raise QueueUnavailable(
                "the embedded Redis has not been started, or listens on a unix socket only"
            )
        return f"redis://{_LOOPBACK}:{self._port}/0"

    @property
    def port(self) -> int:
        """The loopback port; 0 without one."""
        return self._port

    @property
    def running(self) -> bool:
        """Whether the server process is alive."""
        return self._watcher is not None and self._watcher.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the redis-server itself. Raises QueueUnavailable when it does not run."""
        if not self.running:
            raise QueueUnavailable("the embedded Redis is not running")
        return self._pid

    @property
    def server(self) -> Path:
        """The program that is run."""
        if self._server is None:
            self._server = find_server()
        return self._server

    @property
    def kind(self) -> str:
        """`"redis"` or `"valkey"`."""
        return self._identify()[0]

    @property
    def version(self) -> str:
        """The server's version, as `"8.2.3"`."""
        return self._identify()[1]

    @property
    def log(self) -> Path:
        """The server's log file. Raises QueueUnavailable before the first start, when there is no folder for it."""
        if self._data_dir is None and self._temp is None:
            raise QueueUnavailable("the embedded Redis has not been started")
        return self._log()

    # ------------------------------------------------------------------------------------------- what it does

    def start(self) -> EmbeddedRedis:
        """Start it and wait until it answers. Does nothing when it runs already.

        Raises QueueUnavailable: no server, the data folder is in use, or the server refused (its words are given).
        """
        if self.running:
            return self
        if sys.platform == "win32":
            raise QueueUnavailable(
                "the embedded Redis needs Linux or macOS; connect to a Redis with its URL instead"
            )
        self._forget_watcher()
        try:
            lock = self._take_data_dir()
            try:
                self._launch(lock)
            finally:
                # The server holds it now, exactly as long as it lives.
                if lock is not None:
                    lock.close()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it in an orderly way (SIGTERM; SIGKILL after 5 s) and remove the temporary folder. Idempotent."""
        self._end(b"t")
        if self._temp is not None:
            self._temp.cleanup()
            self._temp = self._socket = None

    def kill(self) -> None:
        """SIGKILL, as a crash would. `start()` brings it back under the same URL."""
        self._end(b"k")

    def restart(self) -> None:
        """Stop in an orderly way and start again under the same URL. Without a data folder the data is gone."""
        self._end(b"t")
        self.start()

    def __enter__(self) -> EmbeddedRedis:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    def __repr__(self) -> str:
        state = f"pid {self._pid}" if self.running else "not running"
        return f"<EmbeddedRedis {self._data_dir or 'without data'}, {state}>"

    # ------------------------------------------------------------------------------------------- how

    def _identify(self) -> tuple[str, str]:
        if self._identity is None:
            self._identity = identify(self.server)
        return self._identity

    def _folder(self) -> Path:
        return self._data_dir if self._data_dir is not None else self._temp_folder()

    def _log(self) -> Path:
        return self._folder() / _LOG_NAME

    def _temp_folder(self) -> Path:
        if self._temp is None:
            parent = tempfile.gettempdir()
            room = _SOCKET_PATH_MAX_BYTES - len(f"/timerq-12345678/{_SOCKET_NAME}")
            if len(os.fsencode(parent)) > room:
                parent = "/tmp"
            self._temp = tempfile.TemporaryDirectory(prefix="timerq-", dir=parent, ignore_cleanup_errors=True)
        return Path(self._temp.name)

    def _take_data_dir(self) -> IO[str] | None:
        """Lock the data folder. The lock is the kernel's, so it is never stale; the text in it is for people."""
        if self._data_dir is None:
            return None
        import fcntl

        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            # The file must survive the folder's lifetime: removing it would let two processes lock two files.
            lock = open(self._data_dir / _LOCK_NAME, "a+", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise QueueUnavailable(f"the data folder {self._data_dir} cannot be used: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read(200).strip() or "another process"
            lock.close()
            raise QueueUnavailable(
                f"the data folder {self._data_dir} is in use by {holder}; stop that one, or choose another folder"
            ) from error
        return lock

    def _launch(self, lock: IO[str] | None) -> None:
        for attempts_left in (4, 3, 2, 1, 0):
            if self._chosen_port == 0 and (not self._port or attempts_left < 4):
                self._port = _free_port()
            said_before = self._log().stat().st_size if self._log().exists() else 0
            self._spawn(lock)
            if self._wait_until_ready():
                return
            said = self._said_since(said_before)
            # Between choosing a free port and listening on it, another process may have taken it.
            if attempts_left and self._chosen_port == 0 and "Address already in use" in said:
                continue
            if self.running:
                raise QueueUnavailable(
                    f"{self.server} did not answer within {self._start_timeout_ms} ms; it said:\n{said}"
                )
            raise QueueUnavailable(f"{self.server} ended while it started; it said:\n{said or '(nothing)'}")

    def _spawn(self, lock: IO[str] | None) -> None:
        self._forget_watcher()
        self._choose_socket()
        temp = self._temp.name if self._temp is not None else ""
        watcher = [sys.executable, "-I", "-S", watcher_program.__file__]
        lock_fd = "-1" if lock is None else str(lock.fileno())
        command = [str(self.server), *self._arguments()]
        self._watcher = subprocess.Popen(
            [*watcher, str(os.getpid()), str(_GRACE_MS), str(self._log()), temp, lock_fd, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,  # Ctrl-C in the terminal is for us; we then stop the server in order
            pass_fds=() if lock is None else (lock.fileno(),),
        )
        assert self._watcher.stdout is not None
        first_line = self._watcher.stdout.readline()
        self._pid = int(first_line or 0)
        if lock is not None and self._pid:
            lock.seek(0)
            lock.truncate()
            lock.write(f"process {os.getpid()} (its redis-server is {self._pid})\n")
            lock.flush()

    def _choose_socket(self) -> None:
        if not self._wants_socket:
            return
        path = self._folder() / _SOCKET_NAME
        if len(os.fsencode(path)) > _SOCKET_PATH_MAX_BYTES:
            path = self._temp_folder() / _SOCKET_NAME
        self._socket = path

    def _arguments(self) -> list[str]:
        config = {
            "port": str(self._port),
            "bind": _LOOPBACK,
            "protected-mode": "yes",
            "daemonize": "no",
            "dir": shlex.quote(str(self._folder())),
            "save": "''",
            "appendonly": "no" if self._data_dir is None else "yes",
            "appendfsync": self._appendfsync,
            "maxmemory-policy": "noeviction",
        }
        if self._socket is not None:
            config |= {"unixsocket": shlex.quote(str(self._socket)), "unixsocketperm": "700"}
        config |= self._config
        arguments: list[str] = []
        for name, value in config.items():
            arguments += [f"--{name}", *shlex.split(value)]
        return arguments

    def _wait_until_ready(self) -> bool:
        assert self._watcher is not None
        assert self._watcher.stdout is not None
        deadline = time.monotonic() + self._start_timeout_ms / 1000
        while time.monotonic() < deadline:
            if self._answers():
                return True
            # The watcher's output ends when the server ends, so this wait is cut short by a failure.
            ended, _, _ = select.select([self._watcher.stdout], [], [], 0.005)
            if ended:
                self._watcher.wait()
                return False
        return False

    def _answers(self) -> bool:
        by_socket = self._socket is not None
        family = socket.AF_UNIX if by_socket else socket.AF_INET
        address = str(self._socket) if by_socket else (_LOOPBACK, self._port)
        try:
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(1)
                connection.connect(address)
                connection.sendall(b"PING\r\n")
                # -LOADING means: not yet. A server that asks for a password is up.
                with connection.makefile("rb") as answers:
                    answer = answers.readline()
                    if not answer.startswith(b"+PONG"):
                        return answer.startswith(b"-NOAUTH")
                    # Someone else's server may sit on the port that ours failed to get.
                    connection.sendall(b"INFO server\r\n")
                    said = answers.read(int(answers.readline()[1:]))
                    return b"\r\nprocess_id:%d\r\n" % self._pid in said
        except (OSError, ValueError):
            return False

    def _said_since(self, offset: int) -> str:
        try:
            with open(self._log(), "rb") as log:
                log.seek(max(offset, log.seek(0, os.SEEK_END) - 2_000))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def _end(self, how: bytes) -> None:
        if self._watcher is None:
            return
        assert self._watcher.stdin is not None
        try:
            self._watcher.stdin.write(how)
            self._watcher.stdin.flush()
        except OSError:
            pass  # it has ended already
        try:
            self._watcher.wait(timeout=_GRACE_MS / 1000 + 10)
        except subprocess.TimeoutExpired:
            self._watcher.kill()
        self._forget_watcher()

    def _forget_watcher(self) -> None:
        if self._watcher is not None:
            for pipe in (self._watcher.stdin, self._watcher.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass  # an unsent byte for a watcher that has gone
            self._watcher.wait()
            self._watcher = None
        self._pid = 0


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
