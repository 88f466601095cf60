"""Ports for processes that tests start."""

import random
import socket

# Below Linux' range of ephemeral ports (32768 to 60999): otherwise an outgoing connection of another test may take the
# port between this choice and the start of the process. Random, because several test processes choose at once.
_CANDIDATES = range(15000, 30000)
_TRIES = 100


def free_port() -> int:
    """A port on which nothing on this machine listens or has a connection."""
    for port in random.sample(_CANDIDATES, _TRIES):
        if _free(port):
            return port
    raise OSError(f"none of {_TRIES} ports between {_CANDIDATES.start} and {_CANDIDATES.stop} is free")


def _free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
