"""Tasks of the isolated process in tests. Each ends in another way."""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping


def _hang(_: bytes) -> bytes:
    while True:
        pass


def _hang_in_c(_: bytes) -> bytes:
    """Holds the GIL, as a regular expression does."""
    return bytes(ctypes.PyDLL(None).sleep(3600))


def _ignore_signals(_: bytes) -> bytes:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM, signal.SIGPROF}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)
    return b""


def _bomb(_: bytes) -> bytes:
    return b"x" * (200 * 2**20)


def _slow_bomb(_: bytes) -> bytes:
    kept: list[dict[str, int]] = []
    while True:
        kept.append({"a": len(kept)})


def _crash(_: bytes) -> bytes:
    ctypes.string_at(0)
    return b""


def _leave(_: bytes) -> bytes:
    os._exit(0)


def _raise(_: bytes) -> bytes:
    raise RuntimeError("with details for the log")


def _recurse(payload: bytes) -> bytes:
    return _recurse(payload)


def tasks(settings: str) -> Mapping[str, Callable[[bytes], bytes]]:
    found = {
        "echo": lambda payload: payload,
        "settings": lambda _: settings.encode(),
        "pid": lambda _: str(os.getpid()).encode(),
        "long": lambda _: b"x" * (5 * 2**20),
    }
    for task in (_hang, _hang_in_c, _ignore_signals, _bomb, _slow_bomb, _crash, _leave, _raise, _recurse):
        found[task.__name__] = task
    return found
