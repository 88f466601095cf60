"""The format of messages in a lane: calls with limits, task and payload, and replies.

Tests: tests/isolation/test_process.py
"""

import struct
from typing import Final

CALL: Final = struct.Struct("!ddHI")
"""Seconds of CPU time, seconds, length of the task's name, length of the payload; both follow."""
REPLY: Final = struct.Struct("!cI")
"""Outcome, and length of the payload that follows."""
MAX_REPLY: Final = 4 * 2**20

DONE, RAISED, OUT_OF_MEMORY, KILLED, TOO_LONG = b"D", b"R", b"M", b"K", b"L"


def call_header(cpu_seconds: float, seconds: float, task: str, payload: bytes) -> bytes:
    """The header of a call, without its payload."""
    name = task.encode()
    return CALL.pack(cpu_seconds, seconds, len(name), len(payload)) + name
