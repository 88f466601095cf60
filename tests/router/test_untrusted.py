"""Which texts are decoded: those that take the decoder a short time, however they are written."""

import json
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from pdinference.router.calls import MalformedError, members_of, read_call
from pdinference.router.exchange import PodFailure, Whole, transfer_params
from pdinference.router.untrusted import NotJsonError, check_text, check_values, decoded

_LARGE = 16 * 2**20


def filled(start: bytes, item: bytes, end: bytes) -> bytes:
    """About 16 MiB of items."""
    return start + b",".join([item] * (_LARGE // (len(item) + 1))) + end


def whole(body: bytes) -> Whole:
    return Whole(200, CIMultiDictProxy(CIMultiDict()), body)


def prompt(value: bytes) -> bytes:
    return b'{"model":"m","prompt":' + value + b"}"


HONEST = {
    "text": json.dumps("word " * 3_000_000).encode(),
    "text in another script": json.dumps("言" * 5_000_000, ensure_ascii=False).encode(),
    "text with escapes": json.dumps("言\n" * 2_000_000).encode(),
    "a million tokens": json.dumps(list(range(1_000_000))).encode(),
    "a million tokens in lines": json.dumps([5] * 1_000_000, indent=2).encode(),
    "a list with a text": json.dumps(["word " * 3_000_000]).encode(),
    "a list with tokens": json.dumps([list(range(1_000_000))]).encode(),
}


@pytest.mark.parametrize("value", HONEST.values(), ids=HONEST)
async def test_long_prompts_pass_and_are_split(value: bytes) -> None:
    body = prompt(value)
    await check_text(body)
    headers: CIMultiDict[str] = CIMultiDict()
    found = await read_call("/v1/completions", body, "application/json", headers)
    assert found.split
    assert json.loads(found.for_decode(None))["prompt"] == json.loads(value)


HOSTILE = {
    "digits": filled(b"[", b"1", b"]"),
    "empty lists": filled(b"[", b"[]", b"]"),
    "empty objects": filled(b"[", b"{}", b"]"),
    "deep lists": filled(b"[", b"[" * 300 + b"]" * 300, b"]"),
    "deeper lists": b"[" * (_LARGE // 2) + b"]" * (_LARGE // 2),
    "deep objects": b'{"":' * 40_000 + b" " * _LARGE + b"1" + b"}" * 40_000,
    "spaces": b"[" + b" " * _LARGE + b"]",
    "tabs": b"[1" + b"\t" * _LARGE + b"]",
    "one number": b"1" * _LARGE,
    "strings": filled(b"[", b'""', b"]"),
    "members": filled(b"{", b'"a":1', b"}"),
    "not UTF-8": b'"' + b"x" * _LARGE + b'\xff"',
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
async def test_texts_that_take_long_are_refused_before_they_are_decoded(value: bytes) -> None:
    with pytest.raises(NotJsonError):
        await check_text(prompt(value))
    with pytest.raises(PodFailure, match="malformed_answer"):
        await transfer_params(whole(b'{"choices":' + value + b',"kv_transfer_params":{"a":1}}'))


@pytest.mark.parametrize("value", [json.dumps("x" * 2**21), "1" * 2**21, " " * 2**21, "\n" * 2**21 + '"a"'])
def test_a_large_text_that_is_no_object_is_not_read_to_its_end(value: str) -> None:
    for form in (dict[str, msgspec.Raw], list[int], msgspec.Raw):
        with pytest.raises(NotJsonError, match="never expected"):
            decoded(value.encode(), form)
    with pytest.raises(MalformedError, match="not a JSON object"):
        members_of(value.encode())


@pytest.mark.parametrize(
    ("value", "split"),
    [
        ("[" + " " * 2**21 + "5]", True),
        ("[" + " " * 2**21 + "-5]", True),
        ("[" + " " * 2**21 + "[5]]", True),
        ("[" + " " * 2**21 + '"a"]', True),
        ("[" + " " * 2**21 + '"a","b"]', False),
        ("[" + " " * 2**21 + "]", False),
        ("[[5],[5]]", False),
    ],
)
async def test_spaces_before_a_prompt_do_not_matter(value: str, split: bool) -> None:
    body = prompt(value.encode())
    await check_text(body)
    assert (await read_call("/v1/completions", body, "application/json", CIMultiDict())).split is split


@pytest.mark.parametrize("many", [100, 1_200_000])
async def test_members_of_an_answer_of_p_are_found_among_others(many: int) -> None:
    answer: dict[str, Any] = {"prompt_token_ids": [7] * many, "kv_transfer_params": {"a": "ü"}}
    body = json.dumps(answer, ensure_ascii=False).encode()
    await check_values(body)
    found = await transfer_params(whole(body))
    assert found == {"a": "ü"}
