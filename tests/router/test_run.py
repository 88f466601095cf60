"""The end of a router process."""

import asyncio

import pytest

from pdinference.router.choice import policies
from pdinference.router.dispatch import Rules
from pdinference.router.pods import Pods
from pdinference.router.run import Settings, run
from tests.waiting import LONG_S


async def test_a_router_whose_watch_fails_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdinference.router.run._prepare_process", lambda: None)  # of a process of its own

    async def discover() -> None:
        raise KeyError("the cause")

    rules = Rules(None, policies("least_loaded", whole=True))
    settings = Settings(rules, "127.0.0.1", 0, 0, drain_seconds=0)
    with pytest.raises(RuntimeError, match="has ended") as caught:
        await asyncio.wait_for(run(settings, Pods(roles=rules.roles), discover), LONG_S)
    assert isinstance(caught.value.__cause__, KeyError)
