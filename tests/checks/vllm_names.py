"""Prints names in vLLM's source for `tests/checks/vllm-names/`: `python -m tests.checks.vllm_names FOLDER`.

FOLDER is the package `vllm` as it is installed. It is read as text: not every release can be imported on every machine.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_METRIC = re.compile(r"""["'](vllm:[a-z0-9_]+)["']""")
_CONNECTOR = re.compile(r'\bregister_connector\(\s*"(\w+)"')


def name_list(package: Path) -> str:
    """Each metric as it is written there, without the suffixes of its series, and each registered KV connector."""
    return "".join(f"{line}\n" for line in sorted(set(_names(package))))


def _names(package: Path) -> Iterator[str]:
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        yield from (f"metric {name}" for name in _METRIC.findall(text))
        yield from (f"connector {name}" for name in _CONNECTOR.findall(text))


if __name__ == "__main__":
    print(name_list(Path(sys.argv[1])), end="")  # noqa: T201
