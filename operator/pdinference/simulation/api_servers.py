"""How long requests and tokens wait for vLLM's API servers.

An API server is one thread with an event loop. Each step of the engine gives it a token of each running request. The
engine does not wait for it: messages between both are not limited (`make_zmq_socket` in vllm/utils/network_utils.py). A
server that is behind writes several tokens of a request as one event (`RequestOutputCollector` in
vllm/v1/engine/output_processor.py). A request takes many turns of the loop until its first token is written. While the
server writes the tokens of a step, it gets one turn.
"""

from dataclasses import dataclass

from pdinference.performance.service import Service


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
        return self.service.step_out + self._of_one(running) * self.service.token_out

    def shortest_step(self, running: int) -> float:
        """Seconds of a step below which it gets ever more behind, although it writes many tokens as one event."""
        return self._of_one(running) * self.service.token_merged

    def waiting(self, running: int, step: float, passed: float, reading: float) -> float:
        """Seconds that a request waits for its turns, beside the CPU time that these take.

        Args:
            running: Running requests.
            step: Seconds of a step.
            passed: Seconds of the step under way that have passed. The tokens of the step before it are written first.
            reading: Share of time that requests take.
        """
        service, busy = self.service, self.writing(running) + reading * step
        if busy >= step:
            return max(0.0, service.turns * busy - service.request_cpu)
        left, turn, seconds = service.turns, service.request_cpu / service.turns, 0.0
        while True:
            if passed < busy:
                seconds += busy - passed
                passed = busy
                left -= 1
            turns = (step - passed) / turn
            if turns >= left:
                return max(0.0, seconds + left * turn - service.request_cpu)
            left -= turns
            seconds += step - passed
            passed = 0.0

    def _of_one(self, running: int) -> int:
        return -(-running // self.number)
