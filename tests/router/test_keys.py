"""API keys: names, rotation, limits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pdinference.router.keys import KeyLimitError, KeyLimits, Keys, UnknownKeyError
from tests.router.engines import Fleet, fleet

OLD, NEW, OTHER = "sk-old-0123456789", "sk-new-0123456789", "sk-other-0123456789"


def mounted(folder: Path, **files: str) -> Path:
    """A Secret as the kubelet mounts it: links to links, which it replaces at once."""
    data = folder / f"..{len(list(folder.iterdir()))}"
    data.mkdir()
    for name, text in files.items():
        (data / name).write_text(text)
    link = folder / "..data"
    link.unlink(missing_ok=True)
    link.symlink_to(data.name)
    for path in [path for path in folder.iterdir() if not path.name.startswith(".")]:
        path.unlink()
    for name in files:
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def locked(folder: Path, **limits: KeyLimits) -> AsyncIterator[Fleet]:
    async with fleet("p", "d", keys=Keys(folder, limits)) as world:
        yield world


async def test_only_known_keys_reach_a_pod(tmp_path: Path) -> None:
    async with locked(mounted(tmp_path, a=OLD, b=f"{OTHER}\n")) as world:
        for headers in ({}, bearer(""), bearer(NEW), {"Authorization": OLD}, {"Authorization": f"Basic {OLD}"}):
            status, found, body = await world.post(headers=headers)
            assert (status, found["WWW-Authenticate"]) == (401, "Bearer")
            assert body["error"]["type"] == "authentication_error"
            async with world.client.get(f"{world.url}/v1/models", headers=headers) as answer:
                assert answer.status == 401
        assert not world["p"].raw + world["d"].raw
        for headers in (bearer(OLD), {"X-Api-Key": OTHER}, {"authorization": f"bearer {OTHER}"}):
            assert (await world.post(headers=headers))[0] == 200
        async with world.client.get(f"{world.state}/metrics") as answer:
            lines = await answer.text()
        assert 'client="",outcome="refused",path="/v1/completions",status="401"' in lines
        assert 'client="a",outcome="answered"' in lines
        assert 'client="b",outcome="answered"' in lines


def test_two_keys_of_a_name_are_valid_during_a_rotation(tmp_path: Path) -> None:
    keys = Keys(mounted(tmp_path, a=OLD), {})
    mounted(tmp_path, a=f"{OLD}\n{NEW}\n")
    keys.load()
    assert [keys.name(bearer(key)) for key in (OLD, NEW)] == ["a", "a"]
    mounted(tmp_path, a=NEW)
    keys.load()
    assert keys.name(bearer(NEW)) == "a"
    with pytest.raises(UnknownKeyError):
        keys.name(bearer(OLD))


@pytest.mark.parametrize("text", ["", "\n", "short", "x" * 15])
def test_an_unusable_key_admits_nobody(tmp_path: Path, text: str) -> None:
    keys = Keys(mounted(tmp_path, a=text), {})
    for sent in (text, "", "x" * 15):
        with pytest.raises(UnknownKeyError):
            keys.name(bearer(sent))


def test_keys_stay_valid_while_the_folder_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    mounted(folder, a=OLD)
    keys = Keys(folder, {})
    folder.rename(tmp_path / "b")
    keys.load()
    assert keys.name(bearer(OLD)) == "a"


def test_limits_without_a_key_are_logged_once_until_they_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        messages = [record.getMessage().partition(": ")[2] for record in caplog.records]
        caplog.clear()
        return messages

    keys = Keys(mounted(tmp_path, a=OLD), {"a": KeyLimits(), "team-b": KeyLimits(1), "batch": KeyLimits()})
    assert said() == ["batch, team-b"]
    keys.load()
    assert said() == []
    mounted(tmp_path, a=OLD, batch=OTHER)
    keys.load()
    assert said() == ["team-b"]
    mounted(tmp_path, **{"a": OLD, "batch": OTHER, "team-b": NEW})
    keys.load()
    assert said() == []


def test_requests_a_minute_are_limited_by_name(tmp_path: Path) -> None:
    now = [0.0]
    keys = Keys(mounted(tmp_path, a=OLD, b=OTHER), {"a": KeyLimits(requests_per_minute=2)}, clock=lambda: now[0])

    def send(name: str) -> int:
        try:
            with keys.request(name):
                return 0
        except KeyLimitError as error:
            return error.retry_after

    assert [send("a") for _ in range(3)] == [0, 0, 31]
    assert [send("b") for _ in range(9)] == [0] * 9
    now[0] = 31
    assert send("a") == 0
    assert send("a")
    keys.load()  # reading the Secret again forgets nothing
    assert send("a")


async def test_concurrent_requests_are_limited_by_name(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"a": KeyLimits(concurrent_requests=1)}
    async with locked(mounted(tmp_path, a=OLD, b=OTHER), **limits) as world:
        world["d"].go_on.clear()
        asked = asyncio.create_task(world.post(headers=bearer(OLD)))
        await world["d"].arrived.wait()
        status, headers, body = await world.post(headers=bearer(OLD))
        assert (status, headers["Retry-After"], body["error"]["type"]) == (429, "1", "rate_limit_error")
        world["d"].go_on.set()
        assert (await asked)[0] == 200
        assert (await world.post(headers=bearer(OTHER)))[0] == 200


async def test_a_client_above_its_limit_can_still_list_the_models(tmp_path: Path) -> None:
    """LiteLLM does at each start, Open WebUI with each of its pages: an error there empties their lists."""
    async with locked(mounted(tmp_path, a=OLD), a=KeyLimits(requests_per_minute=1)) as world:

        async def listed(key: str) -> int:
            async with world.client.get(f"{world.url}/v1/models", headers=bearer(key)) as answer:
                return answer.status

        assert [await listed(OLD) for _ in range(3)] == [200] * 3
        assert [(await world.post(headers=bearer(OLD)))[0] for _ in range(2)] == [200, 429]
        assert await listed(OLD) == 200
        assert await listed("sk-unknown-0123456789") == 401


def test_lists_of_models_have_a_limit_of_their_own(tmp_path: Path) -> None:
    now = [0.0]
    keys = Keys(mounted(tmp_path, a=OLD), {"a": KeyLimits(concurrent_requests=1)}, clock=lambda: now[0])
    for _ in range(600):
        with keys.request("a", is_list=True):
            pass
    with pytest.raises(KeyLimitError, match="listed models 600 times"), keys.request("a", is_list=True):
        pass
    with keys.request("a"):
        now[0] += 0.1
        with keys.request("a", is_list=True):
            pass
