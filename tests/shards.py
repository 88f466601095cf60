"""Runs the integration tests in four pytest processes with separate clusters: `python -m tests.shards`.

The tests mostly wait, so four of them fit on two cores. Each file belongs to one process; the split follows the
seconds that the files took when they were recorded, so it is the same on every machine. Arguments go to all of them.
"""

import asyncio
import json
import os
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests import ports

COUNT = 4
FOLDER = Path(__file__).parent / "integration"
RECORDED = FOLDER / "seconds.json"
_RECORD = "--record"
_NOTHING_COLLECTED = 5
_LONGEST_LINE = 2**24


def split(seconds: Mapping[str, float], files: Iterable[str], count: int = COUNT) -> list[list[str]]:
    """Give each file to the process that has the least to do so far, the longest files first.

    A file without a record counts as one of average length.
    """
    average = sum(seconds.values()) / len(seconds) if seconds else 1.0
    shards: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for file in sorted(files, key=lambda file: (-seconds.get(file, average), file)):
        least = loads.index(min(loads))
        shards[least].append(file)
        loads[least] += seconds.get(file, average)
    return [sorted(shard) for shard in shards]


def status(codes: Iterable[int]) -> int:
    """One exit status for all processes: the first failure; no test at all is a failure only if no process had one."""
    found = list(codes)
    if all(code == _NOTHING_COLLECTED for code in found):
        return _NOTHING_COLLECTED
    return next((code for code in found if code not in {0, _NOTHING_COLLECTED}), 0)


@dataclass
class Shard:
    """One pytest process.

    Attributes:
        number: From 1; in front of its lines, and in the name of its clusters.
        report: Where it writes how long each test took.
    """

    number: int
    files: list[str]
    arguments: list[str]
    report: Path
    _process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Run it and print its lines as they come; the exit status comes back."""
        begin = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", *(str(FOLDER / file) for file in self.files)),
            *(f"--junitxml={self.report}", f"-o=cache_dir=.pytest_cache/{self.number}", *self.arguments),
            env=os.environ | self._variables(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_LONGEST_LINE,
            # A terminal sends Ctrl-C to all processes of its group. This one must get it once, from `interrupt`: at a
            # second one pytest ends without taking its clusters down.
            process_group=0,
        )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._say(line.decode(errors="replace").rstrip("\n"))
        code = await self._process.wait()
        self._say(f"ended with {code} after {time.monotonic() - begin:.0f} s")
        return code

    def _variables(self) -> dict[str, str]:
        return {
            "PDINFERENCE_CLUSTER": f"{_cluster()}-{self.number}",
            ports.SLICE: str(self.number),
            "PYTHONUNBUFFERED": "1",
        }

    def interrupt(self) -> None:
        """Let it take down its clusters and end."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)

    def _say(self, line: str) -> None:
        click.echo(f"{self.number}| {line}")


def _cluster() -> str:
    # A name of its own lets two checkouts be tested at once.
    return os.environ.get("PDINFERENCE_CLUSTER", "integration")


def recorded() -> dict[str, float]:
    """Seconds of each file."""
    seconds: dict[str, float] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return seconds


def _record(reports: Iterable[Path]) -> None:
    """Write down how long each file took."""
    seconds: dict[str, float] = {}
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
            file = case.attrib["classname"].rpartition(".")[2] + ".py"
            seconds[file] = seconds.get(file, 0.0) + float(case.attrib["time"])
    text = json.dumps({file: round(seconds[file]) for file in sorted(seconds)}, indent=2)
    RECORDED.write_text(f"{text}\n", encoding="utf-8")


async def _main(arguments: list[str]) -> int:
    files = [path.name for path in FOLDER.glob("test_*.py")]
    options = [argument for argument in arguments if argument != _RECORD]
    with TemporaryDirectory() as folder:
        shards = [
            Shard(number, part, options, Path(folder) / f"{number}.xml")
            for number, part in enumerate(split(recorded(), files), 1)
            if part  # pytest without a file would take all tests
        ]
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, _interrupt, shards)
        code = status(await asyncio.gather(*(shard.run() for shard in shards)))
        if _RECORD in arguments and code == 0:
            _record(shard.report for shard in shards)
    return code


def _interrupt(shards: list[Shard]) -> None:
    for shard in shards:
        shard.interrupt()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(sys.argv[1:])))
