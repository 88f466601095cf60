"""`pdinference plan`, as a person uses it."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pdinference.api.validation import validated
from pdinference.cli import main
from tests.cli.served_cluster import ServedCluster
from tests.conftest import EXAMPLES, REPOSITORY
from tests.memory.configs import LLAMA_1B, LLAMA_8B, LLAMA_70B
from tests.waiting import LONG_S

LLAMA = REPOSITORY / "examples/llama-8b.yaml"


def plan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B))
    return file


def safetensors(file: Path, tensors: dict[str, list[int]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    content = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(content)) + content)


def test_the_table_answers_the_three_questions(config: Path) -> None:
    result = plan("-f", LLAMA, "--model-config", config, "--memory", "80GiB")
    assert result.exit_code == 0
    for words in (
        "P (parameter, prefill)",
        "D (decode)",
        "Why does a model of 15.0 GiB use 73.6 GiB?",
        "How many requests of 16,384 tokens fit? 28.39",
        "What is the largest length? 131,072 tokens",
        "131,072 B",
        "14.99 GiB",
        "kvCache.dtype: fp8",
        "parallelism.tensor: 2",
        "|####",
    ):
        assert words in result.output


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        ("80GiB", "the model fits, with room for 28."),
        ("16GiB", "the model does not fit: one request of 16,384 tokens needs more memory than there is."),
    ],
)
def test_a_plan_begins_with_whether_each_role_fits(config: Path, memory: str, says: str) -> None:
    heading, of_p, of_d = plan("-f", LLAMA, "--model-config", config, "--memory", memory).output.splitlines()[:3]
    assert heading == "default/llama-8b"
    assert of_p.strip().startswith(f"P: {says}")
    assert of_d.strip().startswith(f"D: {says}")


def test_json_has_every_number_with_its_source(config: Path) -> None:
    result = plan("-f", LLAMA, "--model-config", config, "--memory", "80GiB", "-o", "json")
    roles = json.loads(result.output)["roles"]
    assert set(roles) == {"parameter", "decode"}
    decode = roles["decode"]
    assert decode["kvBytesPerToken"]["value"] == 131072
    assert decode["kvCapacityTokens"]["value"] == decode["kvBlocks"]["value"] * 128
    assert {decode[name]["source"] for name in ("weightsBytes", "activationBytes", "overheadBytes")} == {"computed"}
    assert decode["memoryBytes"]["source"] == "measured"


def older(tmp_path: Path, **model: Any) -> Result:
    """A plan with a folder of files in place of what the resource would have to say of the model."""
    shape = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
    config = {"model_type": "internlm", "vocab_size": 103168, "max_position_embeddings": 2048, **shape}
    (tmp_path / "config.json").write_text(json.dumps(config))
    resource = yaml.safe_load(LLAMA.read_text())
    resource["spec"]["model"] = {"source": {"huggingFace": {"repository": "internlm/internlm-7b"}}, **model}
    resource["spec"]["parameter"] = {"accelerator": {"products": ["NVIDIA-GeForce-RTX-4090"]}}
    file = tmp_path / "pdinference.yaml"
    file.write_text(yaml.safe_dump(resource))
    return plan("-f", file, "--model-dir", tmp_path)


def test_what_vllm_would_refuse_of_the_files_is_a_warning(tmp_path: Path) -> None:
    result = older(tmp_path, maxModelLength=4096, quantization="awq")
    assert result.exit_code == 0
    assert "spec.model.maxModelLength: 4096 exceeds the maximum of 2048 positions" in result.stderr
    assert "spec.engine.image: vLLM 0.33.0 does not support models of type internlm" in result.stderr
    assert "spec.model.quantization: The model's config.json has no quantization_config" in result.stderr


def test_a_plan_says_that_d_takes_the_products_of_p(tmp_path: Path) -> None:
    titles = [line.strip() for line in older(tmp_path).stdout.splitlines() if "one device of" in line]
    assert [title.endswith(", on P's products") for title in titles] == [False, True]


def test_a_hub_out_of_reach_is_said_of_this_machine_and_not_of_pods() -> None:
    words = [str(Path(sys.executable).with_name("pdinference")), "plan", "--online", "-f", str(LLAMA)]
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}  # the port for discarding
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=LONG_S)
    assert done.returncode == 1
    assert "This machine cannot reach it" in done.stderr
    assert "--model-dir" in done.stderr
    assert "retried" not in done.stderr


def test_several_resources_are_a_list(tmp_path: Path, config: Path) -> None:
    document = yaml.safe_load(LLAMA.read_text())
    other = {**document, "metadata": {"name": "other"}}
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump_all([document, other]))
    result = plan("-f", file, "--model-config", config, "-o", "json")
    assert [item["name"] for item in json.loads(result.output)["items"]] == ["llama-8b", "other"]
    of_files = plan("-f", file, "-f", LLAMA, "--model-config", config, "-o", "json")
    assert [item["name"] for item in json.loads(of_files.output)["items"]] == ["llama-8b", "other", "llama-8b"]


def test_headers_of_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_1B))
    rows = (1_235_814_400 // 2048) - 128256
    safetensors(tmp_path / "a.safetensors", {"model.embed_tokens.weight": [128256, 2048]})
    safetensors(tmp_path / "b.safetensors", {"model.rest": [rows, 2048]})
    safetensors(tmp_path / "consolidated.safetensors", {"copy": [10**6, 2048]})  # vLLM does not load it
    document = yaml.safe_load(LLAMA.read_text())
    document["spec"]["model"] = {"source": {"path": str(tmp_path)}}
    file = tmp_path / "resource.yaml"
    file.write_text(yaml.safe_dump(document))
    weights = json.loads(plan("-f", file, "-o", "json").output)["roles"]["decode"]["weightsBytes"]
    assert "headers" in weights["note"]
    rotary = 131_072 * 64 * 4  # a table in float32, which no file has
    assert weights["value"] == pytest.approx(2 * 1_235_814_400 + rotary, rel=0.01)
    safetensors(tmp_path / "c.safetensors", {"model.more": [rows, 2048]})
    more = json.loads(plan("-f", file, "--model-dir", tmp_path, "-o", "json").output)
    grown = more["roles"]["decode"]["weightsBytes"]["value"] - weights["value"]
    assert grown == pytest.approx(2 * rows * 2048, rel=0.01)
    index = {"weight_map": {"model.embed_tokens.weight": "a.safetensors", "model.rest": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    indexed = json.loads(plan("-f", file, "-o", "json").output)["roles"]["decode"]["weightsBytes"]
    assert indexed["value"] == weights["value"]


def test_files_without_headers_count_by_their_size(tmp_path: Path) -> None:
    strange = {**LLAMA_8B, "model_type": "strange", "torch_dtype": "float16"}
    (tmp_path / "config.json").write_text(json.dumps(strange))
    for name, size in (("a.bin", 10**10), ("b.bin", 4_001_182_201), ("training_args.bin", 10**9)):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(size)
    role = json.loads(plan("-f", LLAMA, "--model-dir", tmp_path, "-o", "json").output)["roles"]["decode"]
    assert role["weightsBytes"]["value"] == 14_001_182_201
    assert role["weightsBytes"]["note"].startswith("Sizes of 2 .bin files: 13.04 GiB in float16")
    table = plan("-f", LLAMA, "--model-dir", tmp_path).output
    assert "13.04 GiB" in table
    file = tmp_path / "half.json"
    file.write_text(json.dumps({**strange, "torch_dtype": "float32"}))
    halved = plan("-f", LLAMA, "--model-dir", tmp_path, "--model-config", file, "-o", "json").output
    assert json.loads(halved)["roles"]["decode"]["weightsBytes"]["value"] == 14_001_182_201 // 2


def test_a_stated_size_stays_with_another_config(tmp_path: Path) -> None:
    document = yaml.safe_load(LLAMA.read_text())
    document["spec"]["model"]["architecture"] = {"config": LLAMA_8B, "weightsBytes": 14_001_182_201}
    resource, config = tmp_path / "resource.yaml", tmp_path / "config.json"
    resource.write_text(yaml.safe_dump(document))
    config.write_text(json.dumps({**LLAMA_8B, "model_type": "strange"}))
    for more in ((), ("--model-config", config)):
        weights = json.loads(plan("-f", resource, *more, "-o", "json").output)["roles"]["decode"]["weightsBytes"]
        assert weights["value"] == pytest.approx(14_001_182_201, rel=0.005)
        assert "spec.model.architecture.weightsBytes: 13.04 GiB, stated in the spec" in weights["note"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.json": b"{}", "x.bin": b""}, "x.bin is empty"),
        ({}, "has no config.json"),
        ({"config.json": b"{"}, "is not usable as JSON"),
        ({"config.json": b"[]"}, "must be a JSON object"),
        ({"config.json": b"{}"}, "no usable num_hidden_layers"),
        ({"config.json": b"{}", "x.safetensors": b"\xff" * 9}, "is not a safetensors file"),
        ({"config.json": b"{}", "x.safetensors": b"\x04"}, "is truncated within its header, after 1 bytes"),
        ({"config.json": b"{}", "model.safetensors.index.json": b"{}"}, "is not a valid index of safetensors files"),
        (
            {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"a": "gone.safetensors"}}'},
            "lists files that do not exist: gone.safetensors",
        ),
    ],
)
def test_damaged_models_are_told_in_words(tmp_path: Path, files: dict[str, bytes], words: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    result = plan("-f", LLAMA, "--model-dir", tmp_path)
    assert result.exit_code == 1
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_model_on_a_hub_says_what_to_supply(tmp_path: Path) -> None:
    document = yaml.safe_load(LLAMA.read_text())
    del document["spec"]["model"]["architecture"]
    file = tmp_path / "resource.yaml"
    file.write_text(yaml.safe_dump(document))
    result = plan("-f", file)
    assert result.exit_code == 1
    assert "config.json of meta-llama/Llama-3.1-8B-Instruct" in result.output
    assert "--model-dir" in result.output
    assert "spec.model.architecture" in result.output


def test_a_model_in_a_claim_can_be_read_by_a_job(tmp_path: Path) -> None:
    document = yaml.safe_load((REPOSITORY / "examples/tiny-cpu.yaml").read_text(encoding="utf-8"))
    document["spec"]["model"] = {"source": {"persistentVolumeClaim": {"claimName": "models"}}}
    file = tmp_path / "claim.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    words = " ".join(plan("-f", file).output.split())
    assert "config.json of the model in the claim models" in words
    assert words.endswith("In a cluster, a Job reads it with spec.model.inspect: true.")


def test_a_model_in_an_image_is_not_on_a_hub(tmp_path: Path) -> None:
    document = yaml.safe_load((REPOSITORY / "examples/tiny-cpu.yaml").read_text(encoding="utf-8"))
    del document["spec"]["model"]["architecture"]
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    result = plan("-f", file)
    assert "config.json of /models/tiny" in result.output
    assert "Copy it out of a pod or its image" in " ".join(result.output.split())
    assert "--online" not in result.output


@pytest.mark.parametrize(
    ("example", "parameters"),
    [
        ("llama-8b", 8_030_261_248),
        ("llama-70b-four-gpus", 70_553_706_496),
        ("llama-2-70b-four-gpus", 68_976_648_192),
        ("mixed-gpus", 7_615_616_512),
    ],
)
def test_published_models_are_planned_from_the_resource_alone(example: str, parameters: int) -> None:
    """The numbers of parameters are those of the models' cards on the hub."""
    result = plan("-f", REPOSITORY / f"examples/{example}.yaml", "-o", "json")
    assert result.exit_code == 0, result.output
    role = json.loads(result.output)["roles"]["decode"]
    tensor = 2 if "70b" in example else 1
    assert role["weightsBytes"]["value"] * tensor == pytest.approx(2 * parameters, rel=0.008)


def test_the_note_of_four_gpus_is_an_example_with_its_honest_capacity() -> None:
    file = REPOSITORY / "examples/llama-2-70b-four-gpus.yaml"
    result = plan("-f", file, "-o", "json")
    assert result.exit_code == 0, result.output
    decode = json.loads(result.output)["roles"]["decode"]
    tokens, in_tier = decode["kvCapacityTokens"]["value"], decode["tierCapacityTokens"]["cpu"]["value"]
    assert (tokens, in_tier) == (14_976, 419_328)
    comment = " ".join(line.strip("# ") for line in file.read_text().splitlines() if "#" in line)
    assert f"{tokens:,} tokens, or {tokens / 4096:.1f} requests of 4,096 tokens" in comment
    assert f"{in_tier:,} tokens" in file.read_text()


def test_what_follows_from_an_unknown_is_not_explained_again(tmp_path: Path) -> None:
    document = yaml.safe_load(LLAMA.read_text())
    del document["spec"]["parameter"]["accelerator"]
    file = tmp_path / "unpinned.yaml"
    file.write_text(yaml.safe_dump(document))
    assert plan("-f", file).output.count("No product is named") == 2, "once for each role"


def test_an_invalid_resource_is_told_as_render_does(tmp_path: Path, config: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("kind: PDInference\nmetadata: {name: x}\nspec: {}")
    result = plan("-f", file, "--model-config", config)
    assert result.exit_code == 1
    assert "spec.model: This field is required." in result.output


def test_a_size_that_is_none_is_refused(config: Path) -> None:
    result = plan("-f", LLAMA, "--model-config", config, "--memory", "much")
    assert result.exit_code == 2
    assert "Write for example 80GiB" in result.output


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_planned(example: Path, config: Path) -> None:
    if "layerPartition" in example.read_text():  # which has to add up to the layers of the model
        config.write_text(json.dumps(LLAMA_70B))
    result = plan("-f", example, "--model-config", config)
    assert result.exit_code == 0, result.output
    assert "KV per token" in result.output


def test_the_plan_needs_no_cluster_and_no_torch(config: Path) -> None:
    code = (
        "import sys; from click.testing import CliRunner; from pdinference.cli import main;"
        f"CliRunner().invoke(main, ['plan', '-f', {str(LLAMA)!r}, '--model-config', {str(config)!r}]);"
        "print([m for m in ('kopf', 'kubernetes', 'aiohttp', 'torch', 'huggingface_hub') if m in sys.modules],"
        " 'pdinference.memory' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[] True"


def test_tiers_are_told_in_tokens(config: Path, tmp_path: Path) -> None:
    document = yaml.safe_load(LLAMA.read_text())
    document["spec"]["decode"]["kvTiers"] = {"cpu": {"size": "64Gi"}, "disk": {"size": "1Ti"}}
    file = tmp_path / "tiers.yaml"
    file.write_text(yaml.safe_dump(document))
    result = plan("-f", file, "--model-config", config, "--memory", "80GiB")
    assert "tokens in tier cpu" in result.output
    assert "524,288" in result.output
    assert "8,388,608" in result.output


def test_without_p_the_plan_is_of_d_alone() -> None:
    found = plan("-f", REPOSITORY / "examples/aggregated.yaml", "-o", "json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["roles"].keys() == {"decode"}
    text = plan("-f", REPOSITORY / "examples/aggregated.yaml").output
    assert "P (parameter, prefill)" not in text
    assert "spec.mode is Aggregated, so the servers are not split." in text


async def test_a_stored_resource_is_planned_with_what_its_status_knows(tmp_path: Path) -> None:
    stored = yaml.safe_load(LLAMA.read_text(encoding="utf-8"))
    stored["metadata"] |= {"name": "llama", "namespace": "team-a", "uid": "1", "managedFields": []}
    facts = {"source": validated(stored).spec.model.source.identity(), "config": LLAMA_8B}
    cluster = ServedCluster()
    cluster.resources = [{**stored, "status": {"model": {"facts": facts}}}]
    async with cluster.running(tmp_path):
        named = await cluster.run("plan", "llama", "--memory", "80GiB")
        chosen = await cluster.run("plan", "--memory", "80GiB", "-o", "text")
        both = await cluster.run("plan", "llama", "-f", str(LLAMA))
    assert named.exit_code == 0, named.output
    assert "Why does a model of 15.0 GiB use 73.6 GiB?" in named.stdout
    assert chosen.stdout == named.stdout
    assert "Write NAME or -f FILE, not both." in both.stderr


def test_the_output_has_the_names_of_other_commands_and_its_earlier_one(config: Path) -> None:
    words = ("-f", LLAMA, "--model-config", config)
    assert plan(*words, "-o", "text").output == plan(*words, "-o", "table").output == plan(*words).output


def _speculating(tmp_path: Path, model: str) -> Path:
    document = yaml.safe_load(LLAMA.read_text())
    engine = document["spec"].setdefault("engine", {})
    engine["args"] = {"speculative-config": {"method": "eagle3", "model": model, "num_speculative_tokens": 3}}
    file = tmp_path / "speculating.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_draft_is_counted_from_its_config(tmp_path: Path, config: Path) -> None:
    draft = tmp_path / "draft" / "config.json"
    draft.parent.mkdir()
    draft.write_text(json.dumps(LLAMA_8B | {"num_hidden_layers": 1, "draft_vocab_size": 32000}))
    for file, more in ((_speculating(tmp_path, "a/b"), ("--draft-config", draft)),
                       (_speculating(tmp_path, str(draft.parent)), ())):  # fmt: skip
        result = plan("-f", file, "--model-config", config, "--memory", "80GiB", *more)
        assert result.exit_code == 0, result.output
        assert "135,168 B" in result.output
        assert "does not count the draft" not in result.output


def test_a_draft_without_a_config_is_warned_of(tmp_path: Path, config: Path) -> None:
    result = plan("-f", _speculating(tmp_path, "a/b"), "--model-config", config, "--memory", "80GiB")
    assert result.exit_code == 0, result.output
    assert "does not count the draft (eagle3): its config.json is not known here" in result.stderr
    assert "--draft-config" in result.stderr
