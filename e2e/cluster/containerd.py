"""Talk to a containerd: the image store's or a node's."""

import io
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from e2e.cluster.commands import Word, run, succeeds
from e2e.cluster.errors import ClusterError
from e2e.cluster.waiting import tail, wait_until

SNAPSHOTS = Path("io.containerd.snapshotter.v1.overlayfs") / "snapshots"
_BLOBS = Path("io.containerd.content.v1.content") / "blobs" / "sha256"
_IMPORT_SECONDS = 900
_SMALL_BLOB = 1 << 20


@dataclass(frozen=True)
class Containerd:
    """A containerd that runs."""

    root: Path
    address: Path

    @property
    def blobs(self) -> Path:
        """Where it keeps manifests, configurations and packed layers."""
        return self.root / _BLOBS

    def ctr(self, *words: Word, stdin: IO[bytes] | None = None, timeout: float = 60) -> str:
        """Run one of ctr's commands in Kubernetes' own namespace of containerd."""
        return run(self._command(*words), stdin=stdin, timeout=timeout)

    def succeeds(self, *words: Word) -> bool:
        """Say whether one of ctr's commands does."""
        return succeeds(self._command(*words))

    def import_archive(self, archive: Path) -> None:
        """Import and unpack an archive's images."""
        self.ctr("images", "import", archive, timeout=_IMPORT_SECONDS)

    def free_packed_layers(self) -> None:
        """Give back the disk space of the packed layers, which nobody reads once they are unpacked.

        containerd refuses an image whose packed layers are missing, but only looks whether the files exist: so they
        keep their names and sizes, and become holes.
        """
        for blob in self.blobs.iterdir():
            status = blob.stat()
            if status.st_size > _SMALL_BLOB and status.st_blocks:
                run(["fallocate", "--punch-hole", "--length", str(status.st_size), blob])

    def _command(self, *words: Word) -> list[Word]:
        return ["ctr", "--address", self.address, "--namespace", "k8s.io", *words]


def connectable(address: Path) -> bool:
    """Say whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(address)) == 0


@contextmanager
def short_lived(folder: Path, root: Path) -> Iterator[Containerd]:
    """Run a containerd for a while, without the plugin for Kubernetes, so that it starts at once."""
    folder.mkdir(parents=True, exist_ok=True)
    found, log = Containerd(root, folder / "containerd.sock"), folder / "containerd.log"
    config = folder / "containerd.toml"
    # It must never collect garbage by itself: nodes link to the layers, and those being loaded belong to no image yet.
    config.write_text(f"""\
version = 2
root = "{root}"
state = "{folder / "state"}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{found.address}"
[plugins."io.containerd.gc.v1.scheduler"]
  deletion_threshold = 0
  mutation_threshold = 0
  startup_delay = "0s"
""")
    found.address.unlink(missing_ok=True)
    with log.open("wb") as output:
        # It dies with us: one that outlived a SIGKILL would keep its databases locked.
        command = ["setpriv", "--pdeathsig", "KILL", "containerd", "--config", str(config)]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until("the image store", lambda: connectable(found.address) and found.succeeds("version"), timeout=300)
        yield found
    except ClusterError as error:
        raise ClusterError(f"{error}{tail(log)}") from error
    finally:
        process.terminate()
        process.wait()


def tar(files: dict[str, bytes]) -> bytes:
    """Make an archive of executable files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
