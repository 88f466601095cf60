"""A hub with one repository, as far as `huggingface_hub` asks one: for tests, on this machine or in a pod.

It needs aiohttp only, so that any Python image with it can run this file.
"""

import argparse
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

COMMIT = "5c1b0e7d2f3a4958b6c7d8e9f0a1b2c3d4e5f607"
_LARGE = ".safetensors"  # what a hub keeps outside of git, with a SHA-256 of its own
_PIECE = 1 << 16


@dataclass
class Hub:
    """One repository, and what goes wrong with it.

    Attributes:
        folder: Its files.
        token: What clients have to show; empty for everybody.
        gated: Whether its terms were not accepted.
        cuts: For each file, after how many bytes the connection breaks, each number once.
        lies: Files that are sent with a wrong byte, until removed from here.
        requests: Paths of files that were sent.
    """

    folder: Path
    repository: str = "tiny/model"
    revisions: tuple[str, ...] = ("main", COMMIT)
    token: str = ""
    gated: bool = False
    cuts: dict[str, list[int]] = field(default_factory=dict)
    lies: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def application(self) -> web.Application:
        """The server."""
        app = web.Application()
        app.router.add_get("/api/models/{owner}/{name}/revision/{revision}", self._info)
        app.router.add_get("/{owner}/{name}/resolve/{revision}/{path:.+}", self._file)
        return app

    def _refusal(self, request: web.Request) -> web.Response | None:
        asked = f"{request.match_info['owner']}/{request.match_info['name']}"
        if asked != self.repository:
            # The real hub does not tell strangers what exists.
            return _error(401 if not self.token else 404, "RepoNotFound")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _error(401, "", "Invalid credentials in Authorization header")
        if self.gated:
            return _error(403, "GatedRepo")
        if request.match_info["revision"] not in self.revisions:
            return _error(404, "RevisionNotFound")
        return None

    async def _info(self, request: web.Request) -> web.Response:
        if refusal := self._refusal(request):
            return refusal
        files = sorted(file for file in self.folder.rglob("*") if file.is_file())
        siblings = [self._sibling(file) for file in files]
        return web.json_response({"id": self.repository, "sha": COMMIT, "siblings": siblings, "tags": []})

    def _sibling(self, file: Path) -> dict[str, object]:
        content = file.read_bytes()
        entry: dict[str, object] = {"rfilename": str(file.relative_to(self.folder)), "size": len(content)}
        if file.suffix == _LARGE:
            digest = hashlib.sha256(content).hexdigest()
            return {**entry, "blobId": "0" * 40, "lfs": {"sha256": digest, "size": len(content), "pointerSize": 134}}
        return {**entry, "blobId": hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()}  # noqa: S324

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._refusal(request):
            return refusal
        path = request.match_info["path"]
        file = self.folder / path
        if not file.is_file():
            return _error(404, "EntryNotFound")
        content = file.read_bytes()
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(content))})
        self.requests.append(path)
        if path in self.lies:
            content = bytes([content[0] ^ 1]) + content[1:]
        return await self._send(request, path, content, headers)

    async def _send(
        self, request: web.Request, path: str, content: bytes, headers: dict[str, str]
    ) -> web.StreamResponse:
        wanted = request.http_range
        if wanted.start or wanted.stop:
            start, stop, _ = wanted.indices(len(content))
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
            content = content[start:stop]
        response = web.StreamResponse(status=206 if "Content-Range" in headers else 200, headers=headers)
        response.content_length = len(content)
        await response.prepare(request)
        cuts = self.cuts.get(path) or []
        end = cuts.pop(0) if cuts else len(content)
        for begin in range(0, end, _PIECE):
            await response.write(content[begin : min(end, begin + _PIECE)])
        if end < len(content) and request.transport is not None:
            request.transport.close()
        return response


def _error(status: int, code: str, message: str = "") -> web.Response:
    return web.Response(status=status, headers={"X-Error-Code": code, "X-Error-Message": message or code})


def main() -> None:
    """Serve a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repository", required=True)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    web.run_app(Hub(options.folder, options.repository).application(), port=options.port, print=None)


if __name__ == "__main__":
    main()
