"""Which test covers a module: `python -m tests.found` fails for a module whose test is not found by its name.

The test of `operator/pdinference/a/b.py` is `tests/a/test_b.py`; that of `operator/advise/pdinference_advise/a/b.py` is
`tests/advise/a/test_b.py`. A module that another test covers names it in its docstring: `Tests: tests/a/test_c.py`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

_TESTS: Final = Path(__file__).parent
_REPOSITORY: Final = _TESTS.parent
_PACKAGES: Final = {
    _REPOSITORY / "operator" / "pdinference": _TESTS,
    _REPOSITORY / "operator" / "advise" / "pdinference_advise": _TESTS / "advise",
}
_NAMED: Final = re.compile(r"\b(?:tests|e2e)/[\w/]+\.py")


def modules() -> Iterator[tuple[Path, Path]]:
    """Each module, and the test that its name asks for. A package's own file has neither logic nor test."""
    for package, tests in _PACKAGES.items():
        for module in sorted(package.rglob("*.py")):
            if module.name != "__init__.py":
                place = module.relative_to(package)
                yield module, tests / place.parent / f"test_{place.name}"


def not_found() -> list[str]:
    """Modules whose test is neither at its place nor named in the docstring, relative to the repository."""
    return [str(module.relative_to(_REPOSITORY)) for module, test in modules() if not (test.exists() or _named(module))]


def _named(module: Path) -> bool:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    _, _, places = docstring.partition("\nTests: ")
    named = _NAMED.findall(places)
    return bool(named) and all((_REPOSITORY / test).exists() for test in named)


def main() -> None:
    """Name the modules without a test that is found."""
    found = not_found()
    for module in found:
        click.echo(f"{module} has no test of its name. Add it, or name its test in the docstring: `Tests: tests/...`.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
