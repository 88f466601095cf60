"""A real server with the API of S3 for one test, and a folder in a bucket."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import obstore
from obstore.store import S3Store

from e2e.cluster.build import binary
from pdinference.models.hubs.bucket import BucketHub, Place
from tests.integration.registries import answers
from tests.ports import free_port
from tests.waiting import wait_until

KEY = ("reader", "not-a-secret-of-anyone")
BUCKET = "models"
FOLDER = "team/tiny"


@dataclass
class Bucket:
    """A folder in a bucket of a server.

    Attributes:
        endpoint: URL of the server.
        behind: The folder of this machine that the server has the objects in.
    """

    endpoint: str
    behind: Path
    store: S3Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = S3Store(
            BUCKET,
            prefix=FOLDER,
            config={
                "endpoint": self.endpoint,
                "region": "us-east-1",
                "access_key_id": KEY[0],
                "secret_access_key": KEY[1],
                "virtual_hosted_style_request": False,
            },
            client_options={"allow_http": True},
        )

    @property
    def uri(self) -> str:
        return f"s3://{BUCKET}/{FOLDER}"

    def put(self, path: str, content: bytes) -> None:
        obstore.put(self.store, path, content)

    def hub(self, uri: str = "", key: tuple[str, str] | None = KEY, endpoint: str = "") -> BucketHub:
        return BucketHub(Place(uri or self.uri, endpoint or self.endpoint, "us-east-1", key))


@contextmanager
def serving(folder: Path) -> Iterator[Bucket]:
    """A server that has its buckets in a folder."""
    (folder / BUCKET).mkdir(parents=True)
    address = f"127.0.0.1:{free_port()}"
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY[0], "ROOT_SECRET_KEY": KEY[1]}
    command = [str(binary("versitygw")), "--port", address, "--quiet", "posix", str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: answers(address), "the server with the API of S3 answers")
            yield Bucket(f"http://{address}", folder / BUCKET / FOLDER)
        finally:
            process.terminate()
