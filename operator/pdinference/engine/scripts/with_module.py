"""Run a program, in the same process, that can import a module which its image does not have.

The program's child processes can, too. Arguments: name of the module, its text, folder to write it to, the program.
"""

import os
import sys
from pathlib import Path


def main(name: str, text: str, folder: str, *program: str) -> None:
    """Write the module, and become the program."""
    modules = Path(folder)
    modules.mkdir(parents=True, exist_ok=True)
    (modules / f"{name}.py").write_text(text, encoding="utf-8")
    search = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    os.execvpe(program[0], program, {**os.environ, "PYTHONPATH": search})  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(*sys.argv[1:])
