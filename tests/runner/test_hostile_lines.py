"""Any line is a request or an error within limits of memory, and the scan sees all that json.loads parses."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdinference.api.bounded_json import BoundedJsonError, JsonLimits, loads, measure
from pdinference.runner.lines import LONGEST_LINE, BatchRequestInput, InvalidLineError, parsed
from tests.examples import MORE
from tests.hostile.address_space import address_space
from tests.hostile.batch_inputs import FINE, WRONG, request, with_raw

__all__ = ["address_space"]  # an autouse fixture

MIB = 1 << 20


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_request_is_an_error_in_bounded_memory(name: str) -> None:
    line = WRONG[name]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidLineError) as caught:
            parsed(line)
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", FINE)
def test_what_is_odd_is_read_and_sent_as_it_was_meant(name: str) -> None:
    line = FINE[name]
    tracemalloc.start()
    try:
        payload = parsed(line).prepared(None, None).payload
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()
    assert json.loads(payload) == json.loads(line)["body"]


def test_the_largest_line_is_read_in_little_more_memory_than_it_has() -> None:
    line = with_raw("user", b'"' + b"x" * (LONGEST_LINE - 200) + b'"')
    tracemalloc.start()
    parsed(line).prepared("model", None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * LONGEST_LINE


def judged(line: bytes) -> BatchRequestInput | str:
    try:
        return parsed(line)
    except InvalidLineError as error:
        return str(error)


def test_a_line_torn_anywhere_is_an_error() -> None:
    whole = request(custom_id="é😀\\", body={"messages": [{"content": 'a "b" \\ \n'}], "n": -1.5e3})
    assert isinstance(judged(whole), BatchRequestInput)
    for length in range(len(whole)):
        assert isinstance(judged(whole[:length]), str)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    line = bytearray(draw(st.sampled_from([line for line in (*FINE.values(), *WRONG.values()) if len(line) < 2000])))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(line)))
        end = start + draw(st.integers(0, 8))
        line[start:end] = draw(
            st.sampled_from([b'"', b"\\", b"[", b"]", b"{", b"}", b":", b",", b"\\u"]) | st.binary(max_size=4)
        )
    return bytes(line)


@given(mutated() | st.binary(max_size=200))
@settings(max_examples=200 * MORE, deadline=None)
def test_any_bytes_are_a_request_or_an_error(line: bytes) -> None:
    found = judged(line)
    if isinstance(found, BatchRequestInput):
        theirs = json.loads(line)
        assert (found.custom_id, found.url) == (theirs["custom_id"], theirs["url"])
        sent = found.prepared("m", None).payload
        assert json.loads(sent) == {**theirs["body"], "model": "m"}
        assert b"\n" not in sent


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8") | st.sampled_from('"\\[]{},:')),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\[]{},:a😀', max_size=6), inner, max_size=4),
    max_leaves=40,
)


@given(values, st.booleans(), st.integers(0, 9))
def test_the_scan_counts_levels_exactly_and_values_nearly(value: Any, ascii_only: bool, allowed: int) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    limits = JsonLimits(size=len(data), depth=allowed)
    if depth(value) > allowed:
        with pytest.raises(BoundedJsonError, match="levels"):
            measure(data, limits)
    else:
        assert loads(data, limits) == value
    measure(data, JsonLimits(size=len(data), depth=99, values=2 * count(value)))


@given(mutated())
@settings(max_examples=200 * MORE, deadline=None)
def test_what_json_reads_was_counted_and_the_rest_is_an_error(data: bytes) -> None:
    try:
        value = loads(data, JsonLimits(size=4096, depth=20))
    except BoundedJsonError:
        return
    assert depth(value) <= 20
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "-1e999", '{"a": [1, NaN]}'])
def test_numbers_that_are_none_are_refused_or_unknown(text: str) -> None:
    limits = JsonLimits(size=100)
    with pytest.raises(BoundedJsonError):
        loads(text.encode(), limits)
    assert "None" in str(loads(text.encode(), limits, not_finite="unknown"))
