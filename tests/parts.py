"""Runs targets of the Makefile: `python -m tests.parts lint,test-unit,images test-integration test-e2e`.

Each argument is a stage. Its targets run at once, and it begins when the one before it has passed.

Their lines appear as they come, with the target before each. The end repeats the last lines of each part that failed,
and names the command that repeats it.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence

import click

from tests.labelled import Labelled, endings, interrupt_on_signals

_AT_ONCE = 4
"""Parts of a stage, for two cores: some wait for a disk or the network."""
_EVERY_S = 60.0
"""The parts that run are named this often: some print nothing for minutes."""


def summary(parts: Mapping[str, tuple[int | None, float]]) -> str:
    """What came of each part: exit status, None for one that did not begin, and seconds."""
    lines = []
    for name, (code, seconds) in parts.items():
        if code is None:
            lines.append(f"not run  {name}")
        elif code == 0:
            lines.append(f"passed   {name} in {seconds:.0f} s")
        else:
            lines.append(f"FAILED   {name} after {seconds:.0f} s. Its lines begin with `{name}|`. Repeat: make {name}")
    return "\n".join(lines)


async def run(stages: Sequence[Sequence[Labelled]]) -> dict[str, tuple[int | None, float]]:
    """Run the stages one after another; after a failure no other part begins."""
    parts = [part for stage in stages for part in stage]
    found: dict[str, tuple[int | None, float]] = {part.label: (None, 0.0) for part in parts}
    room = asyncio.Semaphore(_AT_ONCE)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True

    async def one(part: Labelled) -> None:
        async with room:
            if stopped:
                return
            code = await part.run()
            found[part.label] = code, part.seconds
            if code != 0:
                stop()

    interrupt_on_signals(parts, stop)
    progress = asyncio.create_task(_progress(parts))
    try:
        for stage in stages:
            await asyncio.gather(*(one(part) for part in stage))
    finally:
        progress.cancel()
    return found


async def _progress(parts: Sequence[Labelled]) -> None:
    begin = time.monotonic()
    while True:
        await asyncio.sleep(_EVERY_S)
        running = ", ".join(part.label for part in parts if part.running)
        click.echo(f"After {time.monotonic() - begin:.0f} s these run: {running}.")


def _stage(targets: str) -> list[Labelled]:
    """The parts of a stage. Those that run at once find the environment ready, and must not change it."""
    # Without the variables of the make that has started this: they name a job server of its own.
    make = ("env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL", "make", "--no-print-directory", "PREPARED=1")
    return [Labelled(target, (*make, target), group=True) for target in targets.split(",")]


@click.command()
@click.argument("stages", nargs=-1, required=True, metavar="TARGET[,TARGET]...")
def main(stages: Sequence[str]) -> None:
    """Run targets of the Makefile."""
    staged = [_stage(stage) for stage in stages]
    found = asyncio.run(run(staged))
    if failed := [part for stage in staged for part in stage if found[part.label][0]]:
        click.echo(endings(failed))
    click.echo(summary(found))
    sys.exit(0 if all(code == 0 for code, _ in found.values()) else 1)


if __name__ == "__main__":
    main()
