"""Runs targets of the Makefile: `python -m tests.parts --at-once=3 lint test-unit images`.

Their lines appear as they come, with the target before each. The end names each part that failed, and the command that
repeats it.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence

import click

from tests.labelled import Labelled, interrupt_on_signals

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


async def run(parts: Sequence[Labelled], at_once: int) -> dict[str, tuple[int | None, float]]:
    """Run them in this order, so many at once; after a failure begin no other one."""
    found: dict[str, tuple[int | None, float]] = {part.label: (None, 0.0) for part in parts}
    room = asyncio.Semaphore(at_once)
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
        await asyncio.gather(*(one(part) for part in parts))
    finally:
        progress.cancel()
    return found


async def _progress(parts: Sequence[Labelled]) -> None:
    begin = time.monotonic()
    while True:
        await asyncio.sleep(_EVERY_S)
        running = ", ".join(part.label for part in parts if part.running)
        click.echo(f"After {time.monotonic() - begin:.0f} s these run: {running}.")


@click.command()
@click.option("--at-once", type=click.IntRange(1), default=1, show_default=True)
@click.argument("targets", nargs=-1, required=True)
def main(at_once: int, targets: Sequence[str]) -> None:
    """Run targets of the Makefile. Those that run at once find the environment ready, and must not change it."""
    ready = ("PREPARED=1",) if at_once > 1 else ()
    # Without the variables of the make that has started this: they name a job server of its own.
    make = ("env", "-u", "MAKEFLAGS", "-u", "MFLAGS", "-u", "MAKELEVEL", "make", "--no-print-directory")
    parts = [Labelled(target, (*make, target, *ready), group=True) for target in targets]
    found = asyncio.run(run(parts, at_once))
    click.echo(summary(found))
    sys.exit(0 if all(code == 0 for code, _ in found.values()) else 1)


if __name__ == "__main__":
    main()
