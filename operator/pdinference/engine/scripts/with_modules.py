"""Run a program, in the same process, that can import the modules beside this file, which its image does not have.

The program's child processes can, too. Arguments: the program.

Tests: tests/engine/connectors/test_own_class.py
"""

import os
import sys
from pathlib import Path


def main(folder: str, *program: str) -> None:
    """Become the program, with one more folder to import from."""
    search = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    os.execvpe(program[0], program, {**os.environ, "PYTHONPATH": search})  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(str(Path(__file__).parent), *sys.argv[1:])
