"""Ports for processes that tests start."""

import os
import random
import socket
from collections.abc import Sequence

# Below Linux' range of ephemeral ports (32768 to 60999): otherwise an outgoing connection of another test may take the
# port between this choice and the start of the process.
_CANDIDATES = range(15000, 30000)
_TRIES = 100
SLICE = "PDINFERENCE_PORT_SLICE"
"""Variable with the number of a slice of the ports, for test processes that run at the same time."""
_SLICES = 8

_given: set[int] = set()
"""Ports that this process has given out. What gets one takes a second until it listens."""


def slice_of(number: int) -> Sequence[int]:
    """The ports of one slice. No two slices have a port in common."""
    return _CANDIDATES[number % _SLICES :: _SLICES]


def free_port() -> int:
    """A port that was not given out, and on which nothing on this machine listens or has a connection.

    The order is random, because test processes without slices of their own choose at once, too.
    """
    candidates = slice_of(int(os.environ.get(SLICE, "0")))
    for port in random.sample(candidates, _TRIES):
        if port not in _given and _free(port):
            _given.add(port)
            return port
    raise OSError(f"none of {_TRIES} ports between {_CANDIDATES.start} and {_CANDIDATES.stop} is free")


def _free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
