"""Predictions of advise, AIConfigurator and AISimulate beside what was measured: `python -m benchmarks.advise.against`.

Without options it prints the tables of benchmarks/results/advise-compared.md from recorded.json. With
`--aiconfigurator PYTHON` or `--aisimulate PYTHON`, the Pythons of environments with these tools, it asks them first.
"""

import argparse
import sys

from benchmarks.advise.against.cases import cases
from benchmarks.advise.against.recording import TOOLS, record
from benchmarks.advise.against.tables import lines


def main() -> None:
    """Record, if asked, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    for tool in TOOLS:
        parser.add_argument(f"--{tool.lower()}", metavar="PYTHON", help=f"ask the {tool} of this environment")
    given = vars(parser.parse_args())
    for tool in TOOLS:
        if given[tool.lower()]:
            record(given[tool.lower()], tool, cases())
    sys.stdout.write("\n".join(lines()) + "\n")


if __name__ == "__main__":
    main()
