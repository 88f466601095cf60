"""The memory plan beside starts of vLLM that were logged.

    uv run python -m benchmarks.memory_plan.logged

prints the table of `benchmarks/memory_plan/starts/`. With a log, its start alone is compared, and `--add` keeps it:

    uv run python -m benchmarks.memory_plan.logged --log vllm.log --config config.json --resource pdinference.yaml

Each start is a folder with config.json, resource.yaml (D is planned) and log.json. `tests/memory/
test_logged_starts.py` holds the plan to them.
"""

import argparse
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.memory import Inputs, RolePlan, model_facts, plan_role
from pdinference.memory.figures import GIB

STARTS = Path(__file__).with_name("starts")
_LARGEST_LOG, _LARGEST_FILE = 64 * 2**20, 2**20
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}")
_NUMBER = r"([\d,]{1,20}(?:\.\d{1,6})?)"
_LINES = {
    "weights": rf"Model loading took {_NUMBER} GiB",
    "graphs": rf"Estimated CUDA graph memory: {_NUMBER} GiB",
    "kv_cache": rf"Available KV cache memory: {_NUMBER} GiB",
    "tokens": rf"KV cache size: {_NUMBER} tokens",
    "concurrency": rf"tokens per request: {_NUMBER}x",
}
_RELEASE = re.compile(r"LLM engine \(v(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")


@dataclass(frozen=True)
class Start:
    """A start of vLLM.

    Attributes:
        log: Numbers as logged: GiB of weights, of CUDA graphs and of the KV cache, tokens and concurrency; `release`;
            `source`; `fitted`, whether it set a constant of the plan.
    """

    name: str
    config: dict[str, Any]
    resource: dict[str, Any]
    log: dict[str, Any]

    @property
    def planned(self) -> RolePlan:
        """The plan of D."""
        return plan_role(Inputs(Spec.model_validate(self.resource["spec"]), model_facts(self.config)), Role.DECODE)

    @property
    def error(self) -> float | None:
        """The planned tokens against the logged ones, as a share; positive where the plan has too many."""
        tokens = self.planned.tokens.value
        return None if tokens is None else tokens / self.log["tokens"] - 1


def read(folder: Path) -> Start:
    """A start that is kept."""
    config, log = (json.loads(_text(folder / name, _LARGEST_FILE)) for name in ("config.json", "log.json"))
    return Start(folder.name, config, yaml.safe_load(_text(folder / "resource.yaml", _LARGEST_FILE)), log)


def starts() -> list[Start]:
    """All starts that are kept."""
    return [read(folder) for folder in sorted(STARTS.iterdir()) if folder.is_dir()]


def parsed(text: str) -> dict[str, Any]:
    """The numbers of vLLM's log at its start; of several ranks, those of the last line.

    Raises:
        ValueError: The log has no size of the KV cache.
    """
    found: dict[str, Any] = {}
    for name, pattern in _LINES.items():
        if numbers := re.findall(pattern, text):
            number = float(numbers[-1].replace(",", ""))
            found[name] = int(number) if name == "tokens" else number
    if release := _RELEASE.search(text):
        found["release"] = release[1]
    if "tokens" not in found:
        raise ValueError("The log has no line `KV cache size: ... tokens`; vLLM writes it at the level INFO.")
    return found


def main() -> None:
    """Print planned beside logged."""
    options = _options()
    try:
        shown = [_given(options)] if options.log else starts()
    except (OSError, ValueError, yaml.YAMLError) as error:
        sys.exit(str(error))
    table = Table(title="planned / logged, GiB and tokens; * set a constant of the plan")
    for column in ("start", "vLLM", "weights", "KV cache", "tokens", "error", "band of tokens"):
        table.add_column(column, justify="left" if column in {"start", "vLLM"} else "right")
    for start in shown:
        table.add_row(*_row(start))
    Console(width=150).print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, help="What vLLM wrote at its start.")
    parser.add_argument("--config", type=Path, help="config.json of the model.")
    parser.add_argument("--resource", type=Path, help="The PDInference whose D started; its product or memory is set.")
    parser.add_argument("--add", metavar="NAME", help="Keep the start under this name.")
    options = parser.parse_args()
    if options.log and not (options.config and options.resource):
        parser.error("--log needs --config and --resource")
    if options.add and not (options.log and _NAME.fullmatch(options.add)):
        parser.error("--add needs --log, and a name of small letters, digits, dots and dashes")
    return options


def _given(options: argparse.Namespace) -> Start:
    """The start of the command line, kept if that is asked for."""
    log = parsed(_text(options.log, _LARGEST_LOG))
    config = json.loads(_text(options.config, _LARGEST_FILE))
    resource = yaml.safe_load(_text(options.resource, _LARGEST_FILE))
    if not isinstance(config, dict) or not isinstance(resource, dict) or "spec" not in resource:
        raise ValueError("--config has to be a JSON object, and --resource a PDInference.")
    start = Start(options.add or "this start", config, resource, log)
    if options.add:
        folder = STARTS / options.add
        folder.mkdir()
        shutil.copyfile(options.config, folder / "config.json")
        shutil.copyfile(options.resource, folder / "resource.yaml")
        (folder / "log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    return start


def _text(file: Path, largest: int) -> str:
    """A text file of limited size.

    Raises:
        ValueError: It is larger.
    """
    with file.open("rb") as stream:
        content = stream.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"{file} has more than {largest} bytes.")
    return content.decode("utf-8", errors="replace")


def _row(start: Start) -> tuple[str, ...]:
    made, log = start.planned, start.log
    error = start.error
    return (
        start.name + ("*" if log.get("fitted") else ""),
        str(log.get("release", "")),
        _pair(made.stage.weights.value, log.get("weights")),
        _pair(made.stage.kv_cache.value, log.get("kv_cache")),
        f"{_whole(made.tokens.value)} / {log['tokens']:,}",
        "" if error is None else f"{error:+.1%}",
        f"{_whole(made.fewest_tokens.value)} to {_whole(made.most_tokens.value)}",
    )


def _pair(planned: float | None, logged: float | None) -> str:
    return f"{'?' if planned is None else f'{planned / GIB:.2f}'} / {'?' if logged is None else f'{logged:.2f}'}"


def _whole(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    main()
