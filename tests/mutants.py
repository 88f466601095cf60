"""Mutation runs: reports small changes of the planner that no test detects.

    make mutants ARGS='planning.rollout memory.split'     # modules or packages; without any: planning and memory

mutmut makes the mutants and runs, for each, the tests that call the changed function. It does so in a copy of the tree
(build/mutants), where operator/ is called src/, as mutmut expects. It changes neither module-level values nor functions
with a decorator other than classmethod and staticmethod, so a property has no mutants.
"""

import argparse
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

REPOSITORY = Path(__file__).parent.parent
COPY = REPOSITORY / "build" / "mutants"
PLANNER = ("planning", "memory")


def main() -> None:
    """Run the mutants of some modules; print survivors and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="For example planning.rollout or memory.")
    parser.add_argument(
        "--tests", nargs="+", default=[f"tests/{package}" for package in PLANNER], help="Where the tests are."
    )
    parser.add_argument("--processes", type=int, default=1, help="Mutants that run at a time.")
    options = parser.parse_args()
    copy_tree()
    files = [pattern(module) for module in options.modules or PLANNER]
    if missing := [file for file in files if not list(COPY.glob(file))]:
        parser.error(f"{', '.join(missing)}: no such module. Use names below pdinference.")
    configure(files, options.tests)
    if mutmut("run", "--max-children", str(options.processes)).returncode:
        sys.exit("mutmut failed; its output is above.")
    report(mutmut("results", "--all", "true", quiet=True).stdout.splitlines())


def pattern(module: str) -> str:
    """The file of a module, or all files of a package."""
    path = f"src/pdinference/{module.replace('.', '/')}"
    return f"{path}/*" if (COPY / path).is_dir() else f"{path}.py"


def copy_tree() -> None:
    """The working tree as it is, without what git ignores."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        source = REPOSITORY / name
        target = COPY / ("src" + name.removeprefix("operator") if name.startswith("operator/") else name)
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def configure(files: list[str], tests: list[str]) -> None:
    """Write mutmut's configuration into the copy."""
    beside = sorted(entry.name for entry in COPY.iterdir() if entry.name != "src")
    settings = {
        "source_paths": ["src"],
        "only_mutate": files,
        "also_copy": beside,
        "pytest_add_cli_args": ["-m", "not vllm", "-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": tests,
    }
    lines = [f"{name} = {value!r}".replace("'", '"') for name, value in settings.items()]
    with (COPY / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write("\n".join(["", "[tool.mutmut]", *lines, ""]))


def mutmut(*arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Run mutmut in the copy."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=COPY, check=False, text=True, stdout=subprocess.PIPE if quiet else None)


def report(lines: Iterable[str]) -> None:
    """Print each mutant that lived, and how many of each module were killed."""
    console = Console(soft_wrap=True, markup=False, highlight=False)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        name, _, status = line.strip().partition(": ")
        module = name.rpartition(".")[0].removeprefix("pdinference.")
        counts[module]["killed" if status in {"killed", "timeout"} else status] += 1
        if status == "survived":
            console.print(mutmut("show", name, quiet=True).stdout)
        elif status not in {"killed", "timeout"}:
            console.print(f"{name}: {status}")
    console.print(f"{'module':<34} mutants  killed  share")
    for module, found in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        killed, total = found["killed"], found.total()
        console.print(f"{module:<34} {total:7} {killed:7} {killed / total if total else 1:6.1%}")


if __name__ == "__main__":
    main()
