"""How long requests and tokens wait for vLLM's API servers.

An API server is one thread with an event loop. Each step of the engine gives it a token of each running request. The
engine does not wait for it: messages between both are not limited (`make_zmq_socket` in vllm/utils/network_utils.py),
so the work that is left can grow. A step of more than 128 requests is handled in parts, with a turn of the loop between
them (`output_handler` in vllm/v1/engine/async_llm.py), and one after the last if no other step waits. Up to 128, a
server that is behind writes the tokens of several steps as one event. A request takes many turns until its first token
is written.
"""

from dataclasses import dataclass
from typing import Final

from pdinference.performance.service import Service

_PART: Final = 128
"""VLLM_V1_OUTPUT_PROC_CHUNK_SIZE."""


@dataclass(frozen=True, slots=True)
class ApiServers:
    """The API servers of an engine, with as many requests each.

    Attributes:
        number: Processes (`api-server-count`).
        service: Their times.
    """

    number: int
    service: Service

    def writing(self, running: int) -> float:
        """Seconds in which the busiest one writes a token of each running request."""
        return self.service.step_out + -(-running // self.number) * self.service.token_out

    def backlog(self, before: float, running: int, steps: int, seconds: float) -> float:
        """Seconds of work that it has left when a number of steps has ended.

        Args:
            before: Seconds of work that were left when they began.
            running: Running requests.
            steps: Number of steps.
            seconds: What they took together.
        """
        writing = self.writing(running)
        if running <= _PART * self.number:
            return writing
        return max(writing, before + steps * writing - seconds)

    def waiting(self, running: int, step: float, passed: float, backlog: float, reading: float) -> float:
        """Seconds that a request waits for its turns, beside the CPU time that these take.

        Args:
            running: Running requests.
            step: Seconds of a step.
            passed: Seconds of the step under way that have passed.
            backlog: Seconds of work that is left now.
            reading: Share of time that requests take.
        """
        service, writing = self.service, self.writing(running) + reading * step
        parts = -(-running // (_PART * self.number))
        left, turn, seconds = service.turns, service.request_cpu / service.turns, 0.0
        while True:
            if backlog:
                busy = min(backlog, step - passed)
                rounds = parts - 1 if parts > 1 and backlog > writing else parts
                turns = max(busy * rounds / writing, float(busy == backlog))
                if turns >= left:
                    return max(0.0, seconds + busy * left / turns - service.request_cpu)
                left, seconds, passed, backlog = left - turns, seconds + busy, passed + busy, backlog - busy
            turns = (step - passed) / turn
            if turns >= left:
                return max(0.0, seconds + left * turn - service.request_cpu)
            left, seconds, passed, backlog = left - turns, seconds + step - passed, 0.0, backlog + writing
