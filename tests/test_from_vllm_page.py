"""Pages for users of vLLM: commands, resources and numbers match the program."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pdinference.checks.options import listed
from pdinference.checks.removed_options import REMOVED
from pdinference.cli import main
from pdinference.conversion.left_out import reason_to_leave_out
from tests.conftest import REPOSITORY, Golden

DOCS = REPOSITORY / "docs"
OPTIONS = DOCS / "vllm-options.md"
SMALL_CARDS = DOCS / "small-cards.md"
PAGES = (DOCS / "from-vllm.md", OPTIONS, SMALL_CARDS)
TEXT = "".join(page.read_text(encoding="utf-8") for page in PAGES)
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LLAMA_2 = {
    "7B": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
    "13B": {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40},
}
SPLITS = [
    ("7B", 1, 1, 1, None),
    ("7B", 2, 1, 2, None),
    ("7B", 1, 2, 2, None),
    ("7B", 1, 1, 1, "bitsandbytes"),
    ("13B", 4, 1, 4, None),
    ("13B", 1, 4, 4, None),
    ("13B", 1, 1, 1, "bitsandbytes"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the pages."""
    for _, name, text in BLOCK.findall(TEXT):
        if name:
            (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_commands_print_what_the_pages_say(golden: Golden) -> None:
    def rerun(match: re.Match[str]) -> str:
        language, _, text = match.groups()
        if language != "console":
            return match[0]
        command = text.splitlines()[0]
        result = CliRunner().invoke(main, shlex.split(command)[2:])
        # Warnings are admission's, and stand on its page.
        errors = [line for line in result.stderr.splitlines(keepends=True) if not line.startswith("Warning: ")]
        return f"```console\n{command}\n{result.stdout}{''.join(errors)}```"

    for page in PAGES:
        golden(page, BLOCK.sub(rerun, page.read_text(encoding="utf-8")))


def test_what_convert_prints_is_valid(folder: Path) -> None:
    for script in folder.glob("*.sh"):
        printed = CliRunner().invoke(main, ["convert", "-f", str(script)])
        assert printed.exit_code == 0
        (folder / "resource.yaml").write_text(printed.stdout)
        result = CliRunner().invoke(main, ["validate", "-f", str(folder / "resource.yaml")])
        assert result.exit_code == 0, result.output


def test_the_batch_of_the_page_is_valid(folder: Path) -> None:
    result = CliRunner().invoke(main, ["validate", "-f", str(folder / "batch.yaml")])
    assert "PDBatch rivers is valid" in result.output


def test_every_option_of_the_page_is_one_that_convert_knows() -> None:
    named = set(re.findall(r"^\|[^|]*?\|", TEXT, re.MULTILINE))
    options = {option for cell in named for option in re.findall(r"`--([a-z-]+)`", cell)}
    assert len(options) > 30
    assert options - listed()[1].keys() - REMOVED.keys() <= {"parameter", "decode"}
    without = {option for option in options if reason_to_leave_out(option) or option in REMOVED}
    assert {"host", "api-key", "swap-space", "disable-log-stats"} <= without


def test_fields_of_the_pages_exist() -> None:
    schema = yaml.safe_load((REPOSITORY / "crds/pdinferences.pdinference.io.yaml").read_text())
    spec = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for field in re.findall(r"`((?:model|engine|parameter|router|transfer)(?:\.[a-zA-Z]+)+)`", TEXT):
        node: Any = spec
        for part in field.split("."):
            node = node["properties"].get(part)
            assert node is not None, field


def figures(folder: Path, split: tuple[str, int, int, int, str | None]) -> str:
    """A line of the page's table, from the plan."""
    model, tensor, pipeline, decode, quantization = split
    accelerator = {"memory": "16Gi"}
    config = {"model_type": "llama", "vocab_size": 32000, "max_position_embeddings": 4096, **LLAMA_2[model]}
    spec = {
        "model": {
            "source": {"path": "/models/llama"},
            "dtype": "float16",
            "quantization": quantization,
            "maxModelLength": 4096,
            "architecture": {"config": config},
        },
        "parameter": {"parallelism": {"tensor": tensor, "pipeline": pipeline}, "accelerator": accelerator},
        "decode": {"parallelism": {"tensor": decode}, "accelerator": accelerator},
    }
    document = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference", "metadata": {"name": "x"}, "spec": spec}
    (folder / "plan.yaml").write_text(yaml.safe_dump(document))
    result = CliRunner().invoke(main, ["plan", "-f", str(folder / "plan.yaml"), "-o", "json"])
    p, d = (json.loads(result.stdout)["roles"][role] for role in ("parameter", "decode"))
    cards = f"`tensor: {tensor}`" if pipeline == 1 else f"`pipeline: {pipeline}`"
    return (
        f"| {model}{', ' + quantization if quantization else ''} | {cards} | {gib(p)} | {tokens(p)} "
        f"| `tensor: {decode}` | {gib(d)} | {tokens(d)} | {d['maxConcurrency']['value']:.1f} |"
    )


def gib(plan: Any) -> str:
    return f"{plan['weightsBytes']['value'] / 2**30:.2f} GiB"


def tokens(plan: Any) -> str:
    return f"{plan['kvCapacityTokens']['value']:,}"


def test_the_figures_of_the_page_are_those_of_the_plan(tmp_path: Path) -> None:
    page = SMALL_CARDS.read_text(encoding="utf-8").splitlines()
    wanted = [figures(tmp_path, split) for split in SPLITS]
    assert [line for line in page if re.match(r"\| (7B|13B)", line)] == wanted
