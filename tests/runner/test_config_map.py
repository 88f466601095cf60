"""Output in a ConfigMap: each response once, whatever happens to writes, and within the size limit."""

import json
from typing import Any

import pytest

from pdinference.cluster.errors import ApiError
from pdinference.runner.config_map import MOST_BYTES, SMALLEST_LINE, ConfigMapStore, require_room
from pdinference.runner.lines import BatchRequestError, BatchRequestOutput, BatchResponseData, new_id
from pdinference.runner.results import ForeignOutputError, FullOutputError, OutputAwayError, UnfitOutputError
from tests.cluster.fake_api import FakeApi

PATH = "/api/v1/namespaces/models/configmaps/answers"


def output(number: int, text: str = "ü\u2028\n", status: int = 200) -> BatchRequestOutput:
    response = BatchResponseData(status_code=status, request_id="r", body={"text": text})
    return BatchRequestOutput(id=new_id(), custom_id=f"request-{number}", response=response, error=None)


class Api(FakeApi):
    """With the ConfigMap as the operator made it, and writes whose answer gets lost on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.put(PATH, {"kind": "ConfigMap", "metadata": {"name": "answers"}})
        self.lost = 0

    async def merge(self, path: str, patch: dict[str, Any], *, manager: str | None = None) -> dict[str, Any]:
        live = await super().merge(path, patch, manager=manager)
        if patch and self.lost:
            self.lost -= 1
            raise ApiError(0, "Unreachable", "the answer was lost")
        return live

    @property
    def data(self) -> dict[str, str]:
        found: dict[str, str] = self.objects[PATH].get("data", {})
        return found

    def ids(self, key: str = "output.jsonl") -> list[str]:
        return [json.loads(line)["custom_id"] for line in self.data.get(key, "").split("\n") if line]


@pytest.fixture
def api() -> Api:
    return Api()


async def opened(api: Api, identity: str = "a") -> ConfigMapStore:
    return await ConfigMapStore.opened(api, PATH, identity, pause_s=0)


async def test_answers_and_failures_are_kept_apart_and_known_to_the_next_runner(api: Api) -> None:
    first = await opened(api)
    await first.append([output(1), output(2, status=400)])
    await first.append([output(3)])
    assert (api.ids(), api.ids("errors.jsonl")) == (["request-1", "request-3"], ["request-2"])
    second = await opened(api)
    assert (second.done.completed, second.done.failed) == (2, 1)
    assert all(f"request-{number}" in second.done.ids for number in (1, 2, 3))


async def test_a_write_whose_answer_was_lost_is_not_made_twice(api: Api) -> None:
    store = await opened(api)
    api.lost = 1
    await store.append([output(1)])
    await store.append([output(2)])
    assert api.ids() == ["request-1", "request-2"]


async def test_who_labels_the_object_disturbs_nobody(api: Api) -> None:
    store = await opened(api)
    await store.append([output(1)])
    api.put(PATH, {**api.objects[PATH], "metadata": {**api.objects[PATH]["metadata"], "labels": {"team": "a"}}})
    await store.append([output(2)])
    assert api.ids() == ["request-1", "request-2"]


async def test_of_two_runners_one_stops(api: Api) -> None:
    first, second = await opened(api), await opened(api)
    await first.append([output(1)])
    with pytest.raises(OutputAwayError, match="Another client"):
        await second.append([output(2)])
    await first.append([output(3)])
    assert api.ids() == ["request-1", "request-3"]


async def test_what_does_not_fit_is_told_and_what_does_is_kept(api: Api) -> None:
    store = await opened(api)
    await store.append([output(1, "x" * (MOST_BYTES - 1000))])
    with pytest.raises(FullOutputError, match=r"full.*persistentVolumeClaim") as caught:
        await store.append([output(2), output(3, "x" * 1000), output(4)])
    assert [line.custom_id for line in caught.value.kept] == ["request-2"]
    assert api.ids() == ["request-1", "request-2"]
    assert sum(len(text.encode()) for text in api.data.values()) <= MOST_BYTES


def test_an_input_whose_output_cannot_fit_is_refused_at_the_start() -> None:
    error = BatchRequestError(code="timeout", message="")
    response = BatchResponseData(status_code=200, request_id="", body=None)
    for shortest in (
        BatchRequestOutput(id=new_id(), custom_id="1", response=None, error=error),
        BatchRequestOutput(id=new_id(), custom_id="1", response=response, error=None),
    ):
        assert len(shortest.as_line()) >= SMALLEST_LINE
    require_room(MOST_BYTES // SMALLEST_LINE)
    with pytest.raises(FullOutputError, match="No request was sent"):
        require_room(MOST_BYTES // SMALLEST_LINE + 1)


async def test_another_batchs_answers_are_left_alone(api: Api) -> None:
    await (await opened(api)).append([output(1)])
    with pytest.raises(ForeignOutputError, match="another input"):
        await opened(api, "b")
    assert api.ids() == ["request-1"]
    api.put(PATH, {"kind": "ConfigMap", "metadata": {"name": "answers"}, "data": {"output.jsonl": "no line\n"}})
    with pytest.raises(ForeignOutputError, match="not batch output"):
        await opened(api)


async def test_a_right_that_comes_a_moment_later_is_waited_for(api: Api) -> None:
    api.fail("merge", PATH, ApiError(403, "Forbidden", "not yet"), ApiError(0, "Unreachable", "away"))
    await (await opened(api)).append([output(1)])
    assert api.ids() == ["request-1"]
    api.fail("merge", PATH, *(ApiError(403, "Forbidden", "never") for _ in range(99)))
    with pytest.raises(OutputAwayError, match="never"):
        await opened(api)


async def test_a_configmap_that_was_deleted_ends_it(api: Api) -> None:
    store = await opened(api)
    del api.objects[PATH]
    with pytest.raises(UnfitOutputError, match="was deleted"):
        await store.append([output(1)])


async def test_strikes_are_known_to_the_next_runner(api: Api) -> None:
    first = await opened(api)
    await first.append([output(1)])
    for custom_id in ("ü\u2028\n", "b", "b"):
        await first.strike(custom_id)
    second = await opened(api)
    assert second.done.strikes == {"ü\u2028\n": 1, "b": 2}
    assert (second.done.completed, api.ids()) == (1, ["request-1"])


async def test_a_strike_whose_answer_was_lost_counts_once(api: Api) -> None:
    store = await opened(api)
    api.lost = 1
    await store.strike("a")
    await store.append([output(1)])
    assert (await opened(api)).done.strikes == {"a": 1}
    assert api.ids() == ["request-1"]


async def test_a_strike_of_a_second_runner_ends_it(api: Api) -> None:
    first, second = await opened(api), await opened(api)
    await first.strike("a")
    with pytest.raises(OutputAwayError, match="Another client"):
        await second.strike("b")
    assert (await opened(api)).done.strikes == {"a": 1}


async def test_a_strike_that_does_not_fit_is_left_out_and_no_response_is_lost(api: Api) -> None:
    store = await opened(api)
    await store.append([output(1, "x" * (MOST_BYTES - 300))])
    before = dict(api.data)
    await store.strike("a" * 200)
    assert api.data == before
    await store.strike("b")
    assert (await opened(api)).done.strikes == {"b": 1}
    assert sum(len(text.encode()) for text in api.data.values()) <= MOST_BYTES


async def test_a_line_of_suspects_that_is_not_whole_counts_nothing(api: Api) -> None:
    await (await opened(api)).strike("a")
    lines = api.data["suspects.jsonl"] + '{"custom_id":"b\n[]\nnull\n' + '{"custom_id":5}\n{"custom_id":"a"'
    api.put(PATH, {**api.objects[PATH], "data": {**api.data, "suspects.jsonl": lines}})
    assert (await opened(api)).done.strikes == {"a": 1}
