"""Keys of a bucket that no file can have. The real server of our tests keeps objects in files, and so has none."""

import asyncio

import pytest
from aiohttp import web

from pdinference.models.errors import ModelError
from pdinference.models.hubs.bucket import BucketHub, Place
from tests.http_server import served

_OBJECT = "<Contents><Key>{key}</Key><LastModified>2026-11-30T06:00:00.000Z</LastModified><Size>2</Size></Contents>"


async def listed(*keys: str) -> list[str]:
    """The files of a bucket with these keys."""

    async def head(_request: web.Request) -> web.Response:
        return web.Response(body=b"{}", headers={"Last-Modified": "Mon, 30 Nov 2026 06:00:00 GMT"})

    async def objects(_request: web.Request) -> web.Response:
        of_keys = "".join(_OBJECT.format(key=key) for key in keys)
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{of_keys}</ListBucketResult>"
        return web.Response(text=text, content_type="application/xml")

    routes = [web.route("HEAD", "/models/tiny/config.json", head), web.get("/models", objects)]
    async with served(routes) as port:
        hub = BucketHub(Place("s3://models/tiny", f"http://127.0.0.1:{port}", "us-east-1", None))
        return [file.path for file in (await asyncio.to_thread(hub.listing)).files]


async def test_a_bucket_without_odd_keys_is_listed() -> None:
    assert await listed("tiny/config.json", "tiny/a/b.json") == ["a/b.json", "config.json"]


@pytest.mark.parametrize("key", ["tiny//b.json", "tiny/a//b.json", "tiny/../b", "tiny/./b"])
async def test_a_key_that_no_file_can_have_is_told_and_is_no_fault_of_the_network(key: str) -> None:
    with pytest.raises(ModelError) as raised:
        await listed("tiny/config.json", key)
    assert raised.value.reason == "NotAModel"
    assert key in str(raised.value)
    assert "Rename or delete it" in str(raised.value)
