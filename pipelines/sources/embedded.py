"""What the embedded servers share: a child process that dies with its owner, and ports that are free."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

# The read ends when the owner has gone, however it went.
_WATCHDOG = 'read -r _; kill -"$1" "$2" 2>/dev/null; [ -z "$3" ] || rm -rf -- "$3"'


class WatchedProcess:
    """A child process in a session of its own: a Ctrl-C for its owner does not end it under the owner's hands.

    A watchdog waits at the end of a pipe that only the owner holds. When the owner has gone it sends `farewell` to the
    process, and takes the folder `temporary` away.

    Args:
        command: What to run.
        log: Where its output goes, from the file's beginning.
        held: File descriptors that it inherits.

    Raises OSError for a program that cannot be run.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        farewell: Literal["TERM", "KILL"],
        temporary: Path | None = None,
        held: Sequence[int] = (),
    ) -> None:
        self._temporary = temporary
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=held,
            )
        self._watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, "sh", farewell, str(self._process.pid), str(temporary or "")],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, seconds: float) -> None:
        """Ask it to end; one that has not gone after `seconds` is killed."""
        if self.running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, and let go of the watchdog and of `temporary`. May be called again."""
        if self.running:
            self._process.kill()
            self._process.wait()
        self._watchdog.kill()
        self._watchdog.communicate()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def free_ports(host: str, number: int) -> list[int]:
    """Ports of `host` that nothing listens on now; another program may be quicker than who asks."""
    held = [socket.socket() for _ in range(number)]
    try:
        for probe in held:
            probe.bind((host, 0))
        return [int(probe.getsockname()[1]) for probe in held]
    finally:
        for probe in held:
            probe.close()
