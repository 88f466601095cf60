"""Members of a body that vLLM hands to its engine: only those pass that cannot harm it."""

import json
import os

import pytest
from multidict import CIMultiDict

from pdinference.router.calls import MalformedError, read_call
from pdinference.router.endpoints import POST
from tests.router.engines import Fleet, fleet
from tests.router.hostile_bodies import bodies

_SEED = int(os.environ.get("HOSTILE_SEED", "1"))
_CASES = int(os.environ.get("HOSTILE_CASES", "1000"))
_KNOWN = {"session_id", "ngram_size", "window_size", "whitelist_token_ids"}
_FORM = "multipart/form-data; boundary=b"
_AUDIO = "/v1/audio/transcriptions"
_HARMFUL = (
    '{"kv_transfer_params": ""}',
    '{"kv_transfer_params": 0}',
    '{"kv_transfer_params": []}',
    '{"kv_transfer_params": {"do_remote_prefill": true, "remote_host": "10.0.0.9"}}',
    '{"kv\\u005ftransfer_params": 0.0}',
    '{"ec_transfer_params": ""}',
    '{"session_id": "a", "ec_transfer_params": ["a"]}',
    '{"kv_cache_report_mode": []}',
    '{"diffusion_canvas_length": [1]}',
    '{"unknown": 1}',
    '{"session_id": 5}',
    '{"ngram_size": true}',
    '{"ngram_size": 1e300}',
    '{"whitelist_token_ids": ["a"]}',
    '{"session_id": {"a": 1}}',
    "5",
    "[]",
    '""',
    '"kv_transfer_params"',
)


@pytest.mark.parametrize("path", POST)
@pytest.mark.parametrize("name", ["vllm_xargs", r"vllm\u005fxargs"])
async def test_harmful_arguments_are_refused(path: str, name: str) -> None:
    for arguments in _HARMFUL:
        body = f'{{"prompt": "a", "max_tokens": 3, "n": 2, "{name}": {arguments}}}'
        with pytest.raises(MalformedError, match="vllm_xargs"):
            await read_call(path, body.encode(), "application/json", CIMultiDict())


async def test_of_members_of_one_name_none_gets_past_the_other() -> None:
    for first, second in (("{}", '{"kv_transfer_params": 0}'), ('{"kv_transfer_params": 0}', "{}")):
        body = f'{{"prompt": "a", "vllm_xargs": {first}, "vllm_xargs": {second}}}'.encode()
        try:
            call = await read_call("/v1/completions", body, "application/json", CIMultiDict())
        except MalformedError:
            continue
        for sent in (call.body, call.for_decode(None), call.for_prefill({}, {})):
            assert sent.count(b"vllm_xargs") == 1
            assert b'{"kv' not in sent


async def test_of_hostile_bodies_nothing_reaches_the_engine_past_its_members() -> None:
    refused = 0
    for path, body in bodies(_SEED, _CASES, model="m"):
        try:
            call = await read_call(path, body, "application/json", CIMultiDict())
        except MalformedError:
            refused += 1
            continue
        for sent in map(json.loads, (call.for_decode(None), call.for_prefill(None, {}))):
            assert not [name for name in sent if name.endswith("_transfer_params")], body
            arguments = sent.get("vllm_xargs", {})
            assert {*arguments} <= _KNOWN, body
            assert isinstance(arguments.get("session_id", ""), str), body
            assert isinstance(arguments.get("whitelist_token_ids", []), list), body
    assert 0 < refused < _CASES


async def test_known_arguments_reach_p_and_d() -> None:
    arguments = {"session_id": "a", "ngram_size": 3, "window_size": 9, "whitelist_token_ids": [1]}
    async with fleet("p", "d") as world:
        assert (await world.post({"vllm_xargs": arguments}))[0] == 200
    assert [engine.bodies[0]["vllm_xargs"] for engine in world.engines.values()] == [arguments] * 2


async def test_arguments_of_the_users_own_logits_processors_reach_d_where_it_has_some() -> None:
    async with fleet("p", "d", rules={"custom_arguments": True}) as world:
        own = {"bias": 1.5, "words": ["a", 2]}
        assert (await world.post({"vllm_xargs": own}))[0] == 200
        for harmful in ({"kv_transfer_params": 0}, {"kv_cache_report_mode": 0}, {"a": {"b": 1}}, {"a": None}):
            assert (await world.post({"vllm_xargs": harmful}))[0] == 400
        assert (await world.post({"vllm_xargs": {str(number): 1 for number in range(65)}}))[0] == 400
    assert [body["vllm_xargs"] for body in world["d"].bodies] == [own]


@pytest.mark.parametrize("member", ["kv_transfer_params", "ec_transfer_params", "new_transfer_params"])
async def test_members_that_say_where_kv_cache_is_are_removed(member: str) -> None:
    async with fleet("p", "d") as world:
        for more in ({}, {"n": 2}):
            for path in ("/v1/completions", "/v1/embeddings"):
                assert (await world.post({member: {"remote_host": "10.0.0.9"}, **more}, path=path))[0] == 200
    sent = json.dumps([engine.bodies for engine in world.engines.values()])
    assert "10.0.0.9" not in sent


async def posted(world: Fleet, form: bytes, kind: str = _FORM) -> tuple[int, str]:
    async with world.client.post(f"{world.url}{_AUDIO}", data=form, headers={"Content-Type": kind}) as answer:
        return answer.status, await answer.text()


def form(*fields: bytes) -> bytes:
    return b"".join(b"--b\r\nContent-Disposition: form-data; " + field + b"\r\n" for field in fields) + b"--b--\r\n"


_FILE = b'name="file"; filename="a \xc3\xa9.wav"\r\nContent-Type: audio/wav\r\n\r\n\x00\xff\r\nRIFF--b'


async def test_a_form_reaches_d_as_the_router_has_read_it() -> None:
    async with fleet("p", "d") as world:
        sent = form(_FILE, b'name="model"\r\n\r\nm', b'name*=utf-8\'\'vllm%5Fxargs\r\n\r\n{"session_id": "a"}')
        assert (await posted(world, sent))[0] == 200
    (raw,), (headers,) = world["d"].raw, world["d"].headers
    boundary = headers["Content-Type"].removeprefix("multipart/form-data; boundary=").encode()
    assert raw.split(b"--" + boundary) == [
        b"",
        b'\r\nContent-Disposition: form-data; name="file"; filename="a _.wav"\r\nContent-Type: audio/wav\r\n\r\n%b\r\n'
        % b"\x00\xff\r\nRIFF--b",
        b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n',
        b'\r\nContent-Disposition: form-data; name="vllm_xargs"\r\n\r\n{"session_id":"a"}\r\n',
        b"--\r\n",
    ]


async def test_a_long_recording_reaches_d() -> None:
    async with fleet("p", "d") as world:
        recording = b"RIFF" * 2**18
        assert (await posted(world, form(_FILE + recording)))[0] == 200
        assert recording in world["d"].raw[0]


@pytest.mark.parametrize("beginning", [b"", b"--b", b"--b--\r\n", b"text\r\n"])
async def test_a_form_whose_boundary_comes_late_is_refused_at_once(beginning: bytes) -> None:
    """A line takes 1.6 us: other requests would wait for half a minute."""
    async with fleet("p", "d") as world:
        status, text = await posted(world, beginning + b"\n" * 2**23 + form(_FILE))
        assert (status, "does not begin with its boundary" in text) == (400, True)


@pytest.mark.parametrize(
    "field",
    [
        b'name="vllm_xargs"\r\n\r\n{"kv_transfer_params": ""}',
        b'name="vllm_xargs"\r\nContent-Type: application/json\r\n\r\n{"kv_transfer_params": ""}',
        b'name="vllm_xargs"; filename="a"\r\n\r\n{"kv_transfer_params": ""}',
        b'name*=utf-8\'\'vllm%5Fxargs\r\n\r\n{"kv_transfer_params": ""}',
        b'name*0="vllm_"; name*1="xargs"\r\n\r\n{"kv_transfer_params": ""}',
        b'name="vllm_xargs"\r\n\r\nnot JSON',
        b'name="a\\"; name=\\"vllm_xargs"\r\n\r\n{"kv_transfer_params": ""}',
        b"\r\n\r\nno name",
    ],
)
async def test_harmful_forms_are_refused(field: bytes) -> None:
    async with fleet("p", "d") as world:
        status, text = await posted(world, form(_FILE, field))
        assert status == 400, text
        assert not world["d"].raw


@pytest.mark.parametrize(
    "body", [b"", b"--b", b"--b\r\n", b"--b--", form(_FILE)[:-8], b"no form", form(*[b'name="a"\r\n\r\n'] * 100)]
)
async def test_what_is_no_form_ends_at_the_router_or_at_d(body: bytes) -> None:
    async with fleet("p", "d") as world:
        status, text = await posted(world, body)
        assert status in {200, 400}, text
        assert (await posted(world, form(_FILE)))[0] == 200


async def test_other_content_types_are_refused_before_a_pod_gets_them() -> None:
    async with fleet("p", "d") as world:
        for kind in ("", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain", _FORM):
            for path in POST:
                if path.startswith("/v1/audio/") and kind == _FORM:
                    continue
                headers = {"Content-Type": kind} if kind else {}
                sent = world.client.post(
                    f"{world.url}{path}", data=b'{"prompt":"a"}', headers=headers, skip_auto_headers=("Content-Type",)
                )
                async with sent as answer:
                    assert answer.status == 400, (kind, path)
        assert not world["p"].raw + world["d"].raw
