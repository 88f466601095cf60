"""Sends the canaries that are due, before requests come and again later, and does what follows from them."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from pdinference.api.names import Role, Verification
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.router import admissions, canary_schedule
from pdinference.router.admissions import Change, RevisionService
from pdinference.router.canary import Canary
from pdinference.router.canary_outcome import CanaryOutcome
from pdinference.router.canary_schedule import Candidates
from pdinference.router.findings import Findings, Pair, Result, restarts_of
from pdinference.router.pod import Admission, Pod
from pdinference.router.pods import Pods

_LOG = logging.getLogger(__name__)
_ROUND_S: Final = 1.0
"""Longest time between two looks at whether a canary is due."""


class Verifier:
    """Sends canaries, and says whether requests may come, and to which D pods.

    Args:
        pods: The pods.
        canary: What is sent.
        mode: Whether requests wait for canaries.
        clock: The clock of the pods, in seconds.
    """

    def __init__(
        self, pods: Pods, canary: Canary, mode: VerificationMode, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pods = pods
        self._canary = canary
        self._clock = clock
        self._findings = Findings(mode)
        self._service = RevisionService(is_open=mode != "Required")

    @property
    def shown(self) -> Result:
        """The worst result among the D pods."""
        return self._findings.shown(is_open=self._service.is_open)

    @property
    def pairs(self) -> Mapping[Pair, Result]:
        """The last result of each pair that was tried."""
        return self._findings.pairs

    def since(self, shown: Result) -> float:
        """Seconds since the canary of a result ended; infinite before any has."""
        return self._clock() - shown.ended_at

    @property
    def refusal(self) -> str:
        """Why requests must not come; empty if they may."""
        return "" if self._service.is_open else admissions.refusal(self._findings, self._pods.linked_decode)

    async def forever(self) -> None:
        """Send canaries until cancelled."""
        if self._findings.mode == "Off":
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as canaries:
            while True:
                for pair in self.due():
                    canaries.create_task(self.send(*pair))
                await self._pods.wait(self.due, self._clock() + _ROUND_S)
                self.judge()

    def due(self) -> list[Pair]:
        """The P and D pods of the canaries that may be sent now."""
        self._forget()
        parameter, decode = self._pods.reachable(Role.PARAMETER), self._pods.reachable(Role.DECODE)
        busy = any(pod.under_way for pod in self._pods)
        candidates = Candidates(parameter, decode, busy, self._pods.doubted_at)
        return canary_schedule.due(self._findings, candidates, self._clock())

    def send(self, parameter: Pod, decode: Pod) -> Coroutine[None, None, None]:
        """A canary through a pair, unless the D pod turns out to serve already. From now on it is under way."""
        self._findings.send(decode, self._clock())
        return self._send(parameter, decode)

    async def _send(self, parameter: Pod, decode: Pod) -> None:
        is_untried = self._findings.is_unproven(decode) and decode not in self._findings.results
        try:
            if is_untried and await self._canary.serves(decode):
                self._pods.admit(decode, Admission.PROVEN)
                self._service = self._service.opened()
            else:
                await self._try(parameter, decode)
        finally:
            self._findings.end(decode)
        self.judge()

    async def _try(self, parameter: Pod, decode: Pod) -> None:
        """Send a canary through a pair, and take what follows from its outcome."""
        began = self._clock()
        before = self._findings.results.get(decode)
        restarts = restarts_of((parameter, decode))
        seconds = canary_schedule.time_for_decode(self._findings.faults(decode))
        outcome = await self._outcome(parameter, decode, seconds)
        ended = self._clock()
        names = parameter.observed.name, decode.observed.name
        result = Result(outcome, *names, ended - began, ended, restarts=restarts).following(before)
        self._apply(admissions.concluded(self._findings, decode, before, result, is_open=self._service.is_open))
        self._findings.take(decode, result)
        if self._findings.take_pair(parameter, decode, result).faults == 1:
            self._pods.doubt(parameter, decode)  # canaries to their other pairs show which of both is to blame
        if before is None or before.outcome.state is not outcome.state:
            level = logging.WARNING if result.is_fault else logging.INFO
            _LOG.log(level, "KV transfer from %s to %s: %s: %s", *names, outcome.state, outcome.reason)

    async def _outcome(self, parameter: Pod, decode: Pod, seconds: float) -> CanaryOutcome:
        """The outcome of a canary, or of a second one if the first may be wrong by chance.

        Args:
            parameter: The P pod.
            decode: The D pod.
            seconds: Time for each answer of D.
        """
        outcome = await self._canary.send(parameter, decode, seconds)
        if not outcome.may_be_chance:
            return outcome
        if outcome.state is Verification.WRONG_ANSWER:
            self._findings.suspect(decode)
            self._apply(admissions.suspected(decode))
        return await self._canary.send(parameter, decode, seconds)

    def judge(self) -> None:
        """Let requests come if they may, and go to D pods that need not wait for P."""
        self._forget()
        now = self._clock()
        self._service = self._service.at(now, self._findings, self._pods.linked_decode)
        for change in admissions.trusted(self._findings, now, is_open=self._service.is_open):
            self._apply(change)

    def _forget(self) -> None:
        self._findings.forget({pod for pod in self._pods if pod.observed.ready})

    def _apply(self, change: Change | None) -> None:
        if change is None:
            return
        self._pods.admit(change.decode, change.admission)
        if change.why:
            _LOG.warning("D pod %s gets requests: %s", change.decode.observed.name, change.why)
