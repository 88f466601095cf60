"""`pdinference plan`: the same GPUs unsplit, more room on D, common GPUs; table and JSON pinned by golden files."""

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from pdinference.cli import main
from tests.conftest import REPOSITORY, Golden
from tests.memory.configs import LLAMA_2_70B, LLAMA_8B

GOLDEN = Path(__file__).parent / "golden" / "plan"
LLAMA = REPOSITORY / "examples/llama-8b.yaml"
A100 = {"products": ["NVIDIA-A100-SXM4-80GB"]}
NOTE: dict[str, Any] = {
    "model": {
        "source": {"path": "/models/llama-2-70b"},
        "dtype": "float16",
        "maxModelLength": 4096,
        "architecture": {"config": LLAMA_2_70B},
    },
    "engine": {
        "gpuMemoryUtilization": 0.85,
        "enableChunkedPrefill": True,
        "enforceEager": True,
        "maxNumBatchedTokens": 4096,
    },
    "parameter": {"parallelism": {"tensor": 2}, "accelerator": A100},
    "decode": {"parallelism": {"tensor": 2}, "accelerator": A100},
}


def plan(folder: Path, spec: dict[str, Any], *arguments: str) -> str:
    document = {
        "apiVersion": "pdinference.io/v1alpha1",
        "kind": "PDInference",
        "metadata": {"name": "llama-2-70b"},
        "spec": spec,
    }
    file = folder / "resource.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    result = CliRunner().invoke(main, ["plan", "-f", str(file), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def llama_8b(**roles: Any) -> dict[str, Any]:
    model = {"source": {"path": "/models/a"}, "maxModelLength": 8192, "architecture": {"config": LLAMA_8B}}
    return {"model": model, **roles}


def trimmed(text: str) -> str:
    """Without spaces at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def without_notes(value: Any) -> Any:
    """Numbers with their source; how they came about is pinned elsewhere."""
    if isinstance(value, dict):
        return {key: without_notes(member) for key, member in value.items() if key not in {"note", "notes", "stages"}}
    return [without_notes(item) for item in value] if isinstance(value, list) else value


def test_the_table_compares_with_the_same_gpus_unsplit(tmp_path: Path, golden: Golden) -> None:
    text = plan(tmp_path, NOTE)
    golden(GOLDEN / "llama-2-70b.txt", trimmed(text[text.index("the same GPUs unsplit") :]))


def test_json_compares_with_the_same_gpus_unsplit(tmp_path: Path, golden: Golden) -> None:
    found = json.loads(plan(tmp_path, NOTE, "-o", "json"))
    answer = {key: found[key] for key in ("unsplit", "moreRoomOnDecode")}
    golden(GOLDEN / "llama-2-70b.json", trimmed(json.dumps(without_notes(answer), indent=2)))
    unsplit = found["unsplit"]["compared"][0]["unsplit"]["kvCapacityTokens"]
    assert unsplit == {"value": 453120, "source": "computed", "note": "As vLLM logs it, in whole blocks of 128."}
    assert found["unsplit"]["notes"]


def test_a_row_for_each_common_gpu_where_none_is_named(tmp_path: Path, golden: Golden) -> None:
    text = plan(tmp_path, llama_8b())
    d = text[text.index("D (decode)") :]
    golden(GOLDEN / "common-gpus.txt", trimmed(d[d.index("no product is named:") :]))
    assert text.count("one device of common GPUs") == 2
    assert "what if" not in text, "all of it would be unknown"


def test_json_has_common_gpus_where_none_is_named(tmp_path: Path) -> None:
    spec = llama_8b(parameter={"accelerator": {"resourceName": "amd.com/gpu"}}, decode={"accelerator": A100})
    roles = json.loads(plan(tmp_path, spec, "-o", "json"))["roles"]
    products = {each["product"]: each for each in roles["parameter"]["commonGpus"]}
    assert set(products) >= {"AMD-Instinct-MI300X"}
    assert products["AMD-Instinct-MI300X"]["fits"] is True
    assert products["AMD-Instinct-MI300X"]["kvCapacityTokens"]["source"] == "computed"
    assert "commonGpus" not in roles["decode"]


def test_stated_memory_needs_no_common_gpus(tmp_path: Path) -> None:
    text = plan(tmp_path, llama_8b(), "--memory", "80GiB")
    assert "common GPUs" not in text
    assert "unsplit: 1 x TP 2" in text
    assert "D is small" not in text


def test_different_products_and_replicas_are_rows_of_their_own(tmp_path: Path) -> None:
    l4 = {"replicas": 3, "accelerator": {"products": ["NVIDIA-L4"]}}
    text = plan(tmp_path, llama_8b(parameter={"accelerator": A100}, decode=l4))
    for words in ("split: 1 P + 3 D", "1 x TP 1 on NVIDIA-A100-SXM4-80GB", "3 x TP 1 on NVIDIA-L4"):
        assert words in text


def test_decode_on_cpu_is_not_called_better(tmp_path: Path) -> None:
    cpu = {"accelerator": {"type": "CPU"}, "env": {"VLLM_CPU_KVCACHE_SPACE": "16"}}
    text = plan(tmp_path, llama_8b(parameter={"accelerator": A100}, decode=cpu))
    assert "its KV cache is in CPU memory" in " ".join(text.split())
    assert "Split is better" not in text
    both = plan(tmp_path, llama_8b(parameter=cpu, decode=cpu))
    assert "The same GPUs unsplit: P and D run on CPU, so there are no GPUs to compare." in both


def test_a_model_that_fits_only_unsplit_is_said_to(tmp_path: Path) -> None:
    h100 = {"parallelism": {"tensor": 1}, "accelerator": {"products": ["NVIDIA-H100-80GB-HBM3"]}}
    text = " ".join(plan(tmp_path, NOTE | {"parameter": h100, "decode": h100, "engine": {}}).split())
    assert "D has no room for any token" in text
    assert "D has no room for one request of 4,096 tokens. More room:" in text
    assert "kvTiers" not in text
    assert "Why does" not in text
    assert "One request of 4,096 tokens needs" in text
    assert "The model does not fit" not in text


def test_one_unknown_device_leaves_it_uncompared(tmp_path: Path) -> None:
    text = plan(tmp_path, llama_8b(parameter={"accelerator": A100}, decode={"accelerator": {"products": ["Unheard"]}}))
    assert "The same GPUs unsplit are not compared" in text


def moving(text: str) -> list[list[str]]:
    """The rows of what moves from P to D."""
    table = text[text.index("KV cache that moves from P to D") :].partition("└")[0]
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]


def test_the_table_has_what_moves_and_proposes_fp8(tmp_path: Path) -> None:
    text = plan(tmp_path, llama_8b())
    assert moving(text) == [
        ["as it is", "131,072", "19.8 / 2.5", "503.5 / 62.9"],
        ["engine.kvCache.dtype: fp8", "65,536", "39.7 / 5.0", "1,007.1 / 125.9"],
    ]
    assert "Evaluate the answers" in text
    fp8 = plan(tmp_path, llama_8b(engine={"kvCache": {"dtype": "fp8"}}))
    assert [row[:2] for row in moving(fp8)] == [["as it is", "65,536"]]
    assert "Evaluate the answers" not in fp8


def test_json_has_what_moves(tmp_path: Path) -> None:
    as_it_is, fp8 = json.loads(plan(tmp_path, llama_8b(), "-o", "json"))["movedToDecode"]
    assert (as_it_is["change"], fp8["change"]) == ("", "engine.kvCache.dtype: fp8")
    assert as_it_is["bytesPerPromptToken"]["value"] == 131_072
    assert fp8["promptTokensPerSecond"]["TCP"]["value"] == 2.6e9 / 65_536


def test_nothing_moves_in_one_role(tmp_path: Path) -> None:
    assert json.loads(plan(tmp_path, llama_8b(mode="Aggregated"), "-o", "json"))["movedToDecode"] == []
    assert "moves from P to D" not in plan(tmp_path, llama_8b(mode="Aggregated"))
