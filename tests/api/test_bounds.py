"""Documents that are too large or too deep are rejected with a message."""

import resource as limits
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pdinference.api.bounds import MAX_DEPTH, MAX_SPEC_BYTES, MAX_VALUES, broken_bound
from pdinference.api.validation import read, read_batch
from tests.conftest import BATCH_EXAMPLE, EXAMPLES, example_documents

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def little_memory() -> Iterator[None]:
    """At most 512 MiB more than now."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
        used = int(statm.read().split()[0]) * limits.getpagesize()
    before = limits.getrlimit(limits.RLIMIT_AS)
    limits.setrlimit(limits.RLIMIT_AS, (used + 512 * 2**20, before[1]))
    yield
    limits.setrlimit(limits.RLIMIT_AS, before)


def nested(levels: int, kind: str = "object") -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if kind == "object" else [value]
    return value


def billion_laughs() -> list[Any]:
    """As the aliases of a YAML file make it: few objects, many paths."""
    value: list[Any] = ["lol"] * 9
    for _ in range(30):
        value = [value] * 9
    return value


def circle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


HOSTILE: dict[str, Any] = {
    "large": "x" * (MAX_SPEC_BYTES + 1),
    "large in bytes, not in characters": "\u20ac" * (MAX_SPEC_BYTES // 3 + 1),
    "huge": "x" * 3_000_000,
    "deep objects": nested(1_000_000),
    "deep lists": nested(1_000_000, "list"),
    "a little too deep": nested(MAX_DEPTH),
    "many values": [[]] * (MAX_VALUES + 1),
    "aliases": billion_laughs(),
    "circle": circle(),
    "keys of numbers": {1: 2},
    "keys that cannot be compared": {1: 2, None: 3, "a": 4, (1, 2): 5},
    "number beyond 64 bits": 10**5000,
    "half of a pair": "\ud800" * MAX_SPEC_BYTES,
}


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", HOSTILE)
def test_what_exceeds_a_bound_is_refused_in_words(name: str, document: Make, batch_document: Make) -> None:
    started = time.process_time()
    for made, reader in ((document(), read), (batch_document(), read_batch)):
        made["spec"]["podTemplate"] = HOSTILE[name]
        reading = reader(made)
        (problem,) = reading.problems
        assert reading.resource is None
        assert problem.field.startswith("spec")
        assert problem.message.endswith(".")
        assert len(str(problem)) < 300
    assert time.process_time() - started < 10


@pytest.mark.parametrize("made", [None, [], "text", 5, {1: 2}, {"metadata": nested(10**5), "spec": {}}])
def test_what_is_no_resource_at_all_is_refused(made: Any) -> None:
    reading = read(made)
    assert reading.resource is None
    assert len(reading.problems) == 1


def test_every_example_is_far_from_the_bounds() -> None:
    for path in [*EXAMPLES, BATCH_EXAMPLE]:
        for made in example_documents(path):
            assert broken_bound(made) is None


def test_a_spec_of_just_the_size_and_depth_is_read(document: Make) -> None:
    made = document()
    made["spec"]["x"] = ""
    made["spec"]["x"] = "x" * (MAX_SPEC_BYTES - len(str(made["spec"]).replace(" ", "")))
    assert broken_bound(made) is None
    made["spec"]["x"] += "x"
    assert str(read(made).problems[0]) == (
        "spec: is 131073 bytes of JSON; the limit is 131072 bytes. Move large parts to a ConfigMap and mount it with "
        "podTemplate."
    )
    made["spec"]["x"] = nested(MAX_DEPTH - 2)
    assert broken_bound(made) is None
    made["spec"]["x"] = nested(MAX_DEPTH - 1)
    assert broken_bound(made) == (
        "spec.x.a.a.a.a",
        "is nested deeper than 64 levels. Use fewer levels of objects and lists.",
    )


def test_what_the_api_server_writes_does_not_count(document: Make) -> None:
    made = document()
    made["metadata"]["managedFields"] = nested(500)
    made["status"] = nested(500)
    assert broken_bound(made) is None
