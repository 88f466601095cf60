"""Leader election by Lease: at most one process writes.

The client library's election (`kubernetes.aio.leaderelection`) does not release the Lease on stop, ends with a
connection error, and keeps working while a renewal hangs. The rules here are:

- The Lease is free when it has no holder, or when it did not change for its duration *by the candidate's own clock*.
- Every write contains the resource version that was read, so one of two candidates gets a conflict.
- A leader that could not renew within `renew_deadline`, which is less than the duration, has lost. It must stop at
  once, before another candidate can take over. A timeout ensures this even if the request hangs. Both times count from
  the request of the last renewal: the API server may have written the Lease long before its answer came.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError

_LOG = logging.getLogger(__name__)
LEASE_NAME = "pdinference-operator"


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds, as in client-go's defaults for controllers."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class LeaderLostError(Exception):
    """The Lease could not be renewed in time, so another candidate may hold it."""


class Leader:
    """A candidate.

    Args:
        identity: Unique among the candidates; shown in the Lease.
        on_change: Called with True when elected, and with False when no longer.
    """

    def __init__(
        self,
        api: ApiServer,
        *,
        namespace: str,
        identity: str,
        timing: LeaseTiming = LeaseTiming(),
        on_change: Callable[[bool], None] = lambda leads: None,
    ) -> None:
        self._api = api
        self._list_path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._list_path}/{LEASE_NAME}"
        self._identity = identity
        self._timing = timing
        self._on_change = on_change
        self._seen: tuple[str, float] = ("", 0.0)  # resource version of the other's Lease, and since when
        self._lease: Json | None = None
        self._elected = False
        self._renewed = 0.0

    @property
    def leads(self) -> bool:
        """Whether this process may write now. Checks the clock too, because the process may have been suspended."""
        return self._elected and self._age < self._timing.duration

    @property
    def _age(self) -> float:
        """Seconds since the request of the last renewal."""
        return asyncio.get_running_loop().time() - self._renewed

    async def acquire(self) -> None:
        """Wait until this process is the leader."""
        # After an answer that came too late to renew in time, the Lease is renewed first.
        while not await self._attempt() or self._age >= self._timing.renew_deadline:  # noqa: ASYNC110 - as below
            await asyncio.sleep(self._timing.retry * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
        self._elected = True
        self._on_change(True)
        _LOG.info("Elected leader as %s", self._identity)

    async def hold(self) -> None:
        """Renew until cancelled.

        Raises:
            LeaderLostError: The Lease was not renewed within the deadline, or another candidate holds it.
        """
        try:
            while True:
                async with asyncio.timeout_at(self._renewed + self._timing.renew_deadline):
                    while not await self._attempt():  # noqa: ASYNC110 - other processes set no events here
                        await asyncio.sleep(self._timing.retry)
                await asyncio.sleep(self._timing.retry)
        except TimeoutError:
            raise LeaderLostError(f"could not renew the Lease within {self._timing.renew_deadline:.0f} s") from None
        finally:
            self._elected = False
            self._on_change(False)

    async def release(self) -> None:
        """Release the Lease, so that the next leader need not wait; only after the last write.

        A renewal that was interrupted may have been written, so that the Lease as it was known is outdated. It is then
        read, and released once more.
        """
        lease, self._lease = self._lease, None
        try:
            async with asyncio.timeout(self._timing.renew_deadline):
                if lease is None or not await self._released(lease):
                    lease = await self._read()
                    if lease is not None and _holder(lease) == self._identity:
                        await self._api.replace(self._path, _without_holder(lease))
        except (ApiError, TimeoutError) as error:
            _LOG.info("Releasing the Lease failed, so it will expire: %s", error)

    async def _released(self, lease: Json) -> bool:
        """Release a Lease as it was known; False if it has changed since."""
        try:
            await self._api.replace(self._path, _without_holder(lease))
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                return False
            raise
        return True

    async def _attempt(self) -> bool:
        """Take or renew the Lease; False when another candidate holds it, or the API server failed."""
        began = asyncio.get_running_loop().time()
        try:
            lease = self._lease or await self._read()
            if lease is None:
                self._lease = await self._api.create(self._list_path, self._new())
            elif self._free(lease):
                self._lease = await self._api.replace(self._path, self._claimed(lease))
            elif self._elected:
                raise LeaderLostError(f"{_holder(lease)} holds the Lease")
            else:
                return False
        except ApiError as error:
            self._lease = None  # read it again: its holder may have changed
            _LOG.warning("Taking or renewing the Lease failed: %s", error)
            return False
        self._renewed = began
        return True

    async def _read(self) -> Json | None:
        try:
            return await self._api.get(self._path)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _free(self, lease: Json) -> bool:
        spec, holder = lease.get("spec") or {}, _holder(lease)
        if not holder or holder == self._identity:
            return True
        now = asyncio.get_running_loop().time()
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, now)
        duration = float(spec.get("leaseDurationSeconds") or self._timing.duration)
        return now - self._seen[1] > duration

    def _claimed(self, lease: Json) -> Json:
        spec = lease.get("spec") or {}
        renewed = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._timing.duration),
            "renewTime": _now(),
        }
        if _holder(lease) != self._identity:
            renewed |= {"acquireTime": _now(), "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        return {**lease, "spec": {**spec, **renewed}}

    def _new(self) -> Json:
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE_NAME}}
        return self._claimed({**lease, "spec": {"leaseTransitions": -1}})


class AlwaysLeader:
    """A candidate without an election, for a single process."""

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        self._on_change = on_change
        self.leads = False

    async def acquire(self) -> None:
        """Lead from now on."""
        self.leads = True
        self._on_change(True)

    async def hold(self) -> None:
        """Lead until cancelled."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Nothing to release."""


def _holder(lease: Json) -> str:
    return (lease.get("spec") or {}).get("holderIdentity") or ""


def _without_holder(lease: Json) -> Json:
    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
    return {**lease, "spec": {**(lease.get("spec") or {}), **released}}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
