"""Runs the integration tests in four pytest processes with separate clusters: `python -m tests.shards`.

The tests mostly wait, so four of them fit on two cores. Each file belongs to one process; the split follows the
seconds that the files took when they were recorded, so it is the same on every machine. Arguments go to all of them.
"""

import asyncio
import json
import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests import ports
from tests.labelled import Labelled, endings, interrupt_on_signals

COUNT = 4
FOLDER = Path(__file__).parent / "integration"
RECORDED = FOLDER / "seconds.json"
_RECORD = "--record"
_NOTHING_COLLECTED = 5
_NO_FAILURE = {0, _NOTHING_COLLECTED}


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
    return next((code for code in found if code not in _NO_FAILURE), 0)


def shard(number: int, files: Iterable[str], arguments: Iterable[str], report: Path) -> Labelled:
    """One pytest process.

    Args:
        number: From 1; before its lines, and in the name of its clusters.
        files: What it runs.
        arguments: For pytest.
        report: Where it writes how long each test took.
    """
    return Labelled(
        str(number),
        (
            *(sys.executable, "-m", "pytest", *(str(FOLDER / file) for file in files)),
            *(f"--junitxml={report}", f"-o=cache_dir=.pytest_cache/{number}", *arguments),
        ),
        {"PDINFERENCE_CLUSTER": f"{_cluster()}-{number}", ports.SLICE: str(number)},
    )


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
            # Of `tests.integration.test_a` or, for a method, `tests.integration.test_a.TestB`.
            file = next(part for part in case.attrib["classname"].split(".") if part.startswith("test_")) + ".py"
            seconds[file] = seconds.get(file, 0.0) + float(case.attrib["time"])
    text = json.dumps({file: round(seconds[file]) for file in sorted(seconds)}, indent=2)
    RECORDED.write_text(f"{text}\n", encoding="utf-8")


async def _main(arguments: list[str]) -> int:
    files = [path.name for path in FOLDER.glob("test_*.py")]
    options = [argument for argument in arguments if argument != _RECORD]
    with TemporaryDirectory() as folder:
        reports = []
        shards = []
        for number, part in enumerate(split(recorded(), files), 1):
            if part:  # pytest without a file would take all tests
                reports.append(Path(folder) / f"{number}.xml")
                shards.append(shard(number, part, options, reports[-1]))
        interrupt_on_signals(shards)
        codes = await asyncio.gather(*(each.run() for each in shards))
        if failed := [each for each, code in zip(shards, codes, strict=True) if code not in _NO_FAILURE]:
            click.echo(endings(failed))
        code = status(codes)
        if _RECORD in arguments and code == 0:
            _record(reports)
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(sys.argv[1:])))
