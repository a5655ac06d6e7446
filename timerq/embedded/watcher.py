"""Runs a server as its child, and ends it when the process that asked for it ends, however that ends.

A program of its own, run by its path in a bare interpreter (it imports nothing of timerq):

    watcher.py PARENT_PID GRACE_MS LOG REMOVE LOCK_FD COMMAND...

It prints the child's pid. On stdin, `t` asks the child to stop (and kills it after GRACE_MS), `k` kills it. The end of
stdin, or a new parent, means that the parent has gone: the child is stopped and the folder REMOVE (may be empty)
is removed. LOCK_FD (-1 for none) is handed on to the child alone, so that the lock lasts exactly as long as the child.
It leaves when the child has ended, with the child's exit code (128 + signal).

Why a process between the two: no parent can promise to clean up after its own SIGKILL, and Linux's parent-death
signal is sent when the *thread* that forked ends. This process has one thread, so for its own child it can use it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time

# A fork of the parent may hold the other end of stdin open, so its end alone is not proof of life.
_LOOK_AT_PARENT_S = 0.5


def main(argv: list[str]) -> int:
    """Run, wait, end. Returns the exit code."""
    parent, grace_ms, log, remove, lock = int(argv[0]), int(argv[1]), argv[2], argv[3], int(argv[4])
    command = argv[5:]
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    asked: list[int] = []
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)

    try:
        with open(log, "ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=() if lock < 0 else (lock,),
                preexec_fn=_die_with_me if sys.platform == "linux" else None,
                restore_signals=True,
            )
    except (OSError, subprocess.SubprocessError) as error:
        with open(log, "a", encoding="utf-8") as output:
            output.write(f"cannot run {command[0]}: {error}\n")
        return 127
    if lock >= 0:
        os.close(lock)
    os.write(1, b"%d\n" % child.pid)

    orphaned = False
    kill_at: float | None = None
    while child.poll() is None:
        wait = _LOOK_AT_PARENT_S if kill_at is None else max(0.0, min(0.5, kill_at - time.monotonic()))
        ready, _, _ = select.select([wake_read] if orphaned else [wake_read, 0], [], [], wait)
        if wake_read in ready:
            os.read(wake_read, 512)
        said = os.read(0, 1) if 0 in ready else b"-"
        if not orphaned and (said == b"" or asked or os.getppid() != parent):
            orphaned = True
            said = b"t"
        if said == b"t" and kill_at is None:
            kill_at = time.monotonic() + grace_ms / 1000
            child.terminate()
            child.send_signal(signal.SIGCONT)  # a stopped process hears nothing else
        if said == b"k" or (kill_at is not None and time.monotonic() >= kill_at):
            child.kill()
            child.wait()
    if remove and (orphaned or os.getppid() != parent):
        shutil.rmtree(remove, ignore_errors=True)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _die_with_me() -> None:
    import ctypes

    watcher = os.getppid()
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != watcher:  # it ended before the call
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
