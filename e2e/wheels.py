"""The wheels of a release: the command line, and `pdinference advise`, for `uvx` and `pipx run`."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from e2e import images, programs
from e2e.cluster.commands import run

_SECONDS: Final = 300


def build(folder: Path) -> list[Path]:
    """Build the wheels of both distributions.

    Args:
        folder: For the wheels.

    Returns:
        Their files, that of `pdinference` first.

    Raises:
        ClusterError: uv failed; it needs PyPI for the build backend.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:  # uv adds a .gitignore
        command: list[str | Path] = [programs.UV, "build", "--quiet", "--wheel", "--all-packages"]
        run([*command, "--out-dir", temporary, images.REPOSITORY], timeout=_SECONDS)
        return [Path(shutil.copy(wheel, folder)) for wheel in sorted(Path(temporary).glob("*.whl"))]
