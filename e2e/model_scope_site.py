"""A ModelScope site with one repository, as far as its client asks one: for tests, on this machine or in a pod.

It needs aiohttp only, so that any Python image with it can run this file. It answers the two paths of `modelscope_hub`
that a download takes, the list of files and one file; what the client asks besides (a mirror nearby) is not found.
"""

import argparse
import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

REVISION = "v1.0.7"
"""A tag: ModelScope's own way to pin a revision."""


@dataclass
class ModelScopeSite:
    """One repository.

    Attributes:
        folder: Its files.
        requests: Path and query of each request, also of those that no ModelScope client sends.
    """

    folder: Path
    repository: str = "tiny/model"
    revisions: tuple[str, ...] = ("master", REVISION)
    requests: list[str] = field(default_factory=list)

    def application(self) -> web.Application:
        """The server."""
        app = web.Application()
        app.on_response_prepare.append(self._record)
        app.router.add_get("/api/v1/models/{owner}/{name}/repo/files", self._list)
        app.router.add_get("/api/v1/models/{owner}/{name}/repo", self._file)
        return app

    async def _record(self, request: web.Request, _: web.StreamResponse) -> None:
        """A probe of the kubelet opens a connection and sends no request, so only clients are recorded."""
        self.requests.append(request.path_qs)
        sys.stdout.write(f"{request.path_qs}\n")
        sys.stdout.flush()

    def _is_known(self, request: web.Request) -> bool:
        asked = f"{request.match_info['owner']}/{request.match_info['name']}"
        return asked == self.repository and request.query.get("Revision") in self.revisions

    async def _list(self, request: web.Request) -> web.Response:
        if not self._is_known(request):
            return _absent()
        found = sorted(self.folder.rglob("*"))
        files = [self._blob(path) if path.is_file() else self._tree(path) for path in found]
        return web.json_response({"Code": 200, "Success": True, "Data": {"Files": files}})

    def _tree(self, folder: Path) -> dict[str, object]:
        return {"Path": str(folder.relative_to(self.folder)), "Name": folder.name, "Size": 0, "Type": "tree"}

    def _blob(self, file: Path) -> dict[str, object]:
        content = file.read_bytes()
        return {
            "Path": str(file.relative_to(self.folder)),
            "Name": file.name,
            "Size": len(content),
            "Sha256": hashlib.sha256(content).hexdigest(),
            "Type": "blob",
        }

    async def _file(self, request: web.Request) -> web.Response:
        file = self.folder / request.query.get("FilePath", "")
        if not self._is_known(request) or not file.is_file():
            return _absent()
        content = file.read_bytes()
        wanted = request.http_range
        if wanted.start is None and wanted.stop is None:
            return web.Response(body=content)
        start, stop, _ = wanted.indices(len(content))
        content_range = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
        return web.Response(status=206, body=content[start:stop], headers=content_range)


def _absent() -> web.Response:
    return web.json_response({"Code": 10010205001, "Success": False, "Message": "not found"}, status=404)


def main() -> None:
    """Serve a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--repository", required=True)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    web.run_app(ModelScopeSite(options.folder, options.repository).application(), port=options.port, print=None)


if __name__ == "__main__":
    main()
