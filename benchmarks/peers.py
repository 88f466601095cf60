"""A process that talks to this one over a pipe, and can be killed: a peer of NIXL in a benchmark."""

import multiprocessing
from collections.abc import Callable
from typing import Any


class Peer:
    """A process that runs a function with a pipe, and first says what it is.

    Args:
        run: The function; its first argument is its end of the pipe.
        given: Its further arguments.
        limit_s: Seconds that an answer may take.

    Attributes:
        described: What it said of itself.
    """

    def __init__(self, run: Callable[..., None], *given: object, limit_s: float) -> None:
        self._limit_s = limit_s
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=run, args=(theirs, *given), daemon=True)
        self._process.start()
        theirs.close()  # so that its death ends a wait for its answer
        self.described = self._answer()

    def ask(self, *message: Any) -> Any:
        """Its answer to a message, which it gets as a tuple.

        Raises:
            EOFError: It died.
            TimeoutError: It does not answer.
        """
        self._pipe.send(message)
        return self._answer()

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself."""
        self._process.join(seconds)
        return not self._process.is_alive()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.join(10)

    def _answer(self) -> Any:
        if not self._pipe.poll(self._limit_s):
            raise TimeoutError
        return self._pipe.recv()
