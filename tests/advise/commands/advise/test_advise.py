"""`pdinference advise`, as a person uses it."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pdinference.api.validation import validated
from pdinference.cli import main
from pdinference.performance.calibration import H200
from pdinference.performance.devices import DEVICES
from pdinference_advise.fitting.calibration_file import CalibrationFile, Parameters, Peaks, RequestTimes
from tests.conftest import REPOSITORY

LLAMA = REPOSITORY / "examples/llama-8b.yaml"
LOAD = ("--rate", "5", "--prompt-tokens", "1000", "--answer-tokens", "50", "--seconds", "60")
OBJECTIVES = ("--ttft", "500ms", "--tpot", "30ms")


def advise(*arguments: str | Path, jobs: int = 1) -> Result:
    return CliRunner().invoke(main, ["advise", "-f", str(LLAMA), "--jobs", str(jobs), *map(str, arguments)])


def test_the_screen_begins_with_the_verdict_and_ends_with_a_valid_resource(tmp_path: Path) -> None:
    result = advise("--gpus", "2xH200", *LOAD, *OBJECTIVES)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(
        "Do not split. An unsplit model keeps the objectives with 1 GPU; split needs 2 GPUs.\n"
    )
    for words in ("Objectives: TTFT 500 ms, TPOT 30 ms for 99 % of requests", "unsplit: 1 x TP 1", "Usual error:"):
        assert words in result.stdout
    file = tmp_path / "resource.yaml"
    file.write_text(result.stdout[result.stdout.index("apiVersion:") :])
    validated = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert validated.exit_code == 0, validated.output


def test_processes_give_the_same_answer() -> None:
    alone, together = (advise("--gpus", "2xH200", *LOAD, "-o", "json", jobs=jobs) for jobs in (1, 2))
    assert alone.exit_code == together.exit_code == 0
    assert json.loads(alone.stdout) == json.loads(together.stdout)


def test_yaml_is_the_resource_alone() -> None:
    result = advise("--gpus", "1xH200", *LOAD, *OBJECTIVES, "-o", "yaml")
    document = yaml.safe_load(result.stdout)
    assert document["spec"]["mode"] == "Aggregated"
    assert document["spec"]["decode"]["accelerator"] == {"products": ["NVIDIA-H200"]}


def test_a_trace_is_a_load(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = ({"timestamp": 200 * n, "input_length": 1000, "output_length": 50, "hash_ids": [0, n]} for n in range(300))
    trace.write_text("\n".join(map(json.dumps, rows)))
    result = advise("--gpus", "1xH200", "--trace", trace, *OBJECTIVES, "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["load"]["requestsPerSecond"] == pytest.approx(5)


def test_time_stamps_with_a_fraction_need_the_unit_that_the_message_asks_for(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = ({"timestamp": 0.2 * n + 0.05, "input_length": 1000, "output_length": 50} for n in range(300))
    trace.write_text("\n".join(map(json.dumps, rows)))
    question = ("--gpus", "1xH200", "--trace", trace, *OBJECTIVES, "-o", "json")
    assert "Give the unit: --trace-unit s or --trace-unit ms." in advise(*question).output
    result = advise(*question, "--trace-unit", "s")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["load"]["requestsPerSecond"] == pytest.approx(5)


def test_classes_have_objectives_of_their_own() -> None:
    classes = ("--class", "chat:80%:500:50", "--class", "papers:20%:8000:50")
    result = advise(
        "--gpus", "1xH200", "--rate", "2", *classes, "--seconds", "60",
        "--objective", "chat:ttft=300ms,tpot=30ms", "--objective", "papers:ttft=5s", "-o", "json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["objectives"]["classes"]["papers"] == {"ttft": 5.0, "tpot": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "2xH200"), "Describe the load: --rate 10 --prompt-tokens 1000"),
        (("--gpus", "2xH200", *LOAD, "--class", "chat:100%:5:5"), "Leave --prompt-tokens out"),
        (("--gpus", "2xH200", *LOAD, "--live"), "Give one load"),
        (("--gpus", "eight", *LOAD), '--gpus: "eight" is no number of GPUs'),
        (("--gpus", "2xH200", *LOAD, "--ttft", "fast"), '--ttft: "fast" is no duration'),
        (("--gpus", "1xA10", "--memory", "12GiB", *LOAD), "The model fits none of the GPUs"),
        (("--gpus", "2xH200", *LOAD, "--plot", "picture.gif"), "ends with neither .svg nor .png"),
    ],
)
def test_a_wrong_question_is_refused_with_what_to_do(arguments: tuple[str, ...], message: str) -> None:
    result = advise(*arguments)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("name", ["picture.svg", "picture.png"])
def test_the_picture(tmp_path: Path, name: str) -> None:
    result = advise("--gpus", "1xH200", *LOAD, *OBJECTIVES, "--plot", tmp_path / name)
    assert result.exit_code == 0, result.output
    assert (tmp_path / name).read_bytes()[:5] in {b"<?xml", b"\x89PNG\r"}


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = advise("--gpus", "1xH200", *LOAD, "--plot", "picture.svg")
    assert "pip install 'pdinference-advise[plot]'" in result.output


def _calibration(product: str) -> dict[str, object]:
    """The H200's, four times as slow, under another name."""
    peaks = {name: getattr(DEVICES["nvidia-h200"], name) / 4 for name in Peaks.model_fields}
    parameters = {name: getattr(H200, name) for name in Parameters.model_fields}
    return CalibrationFile.model_validate(
        {
            "product": product, "vllm": "0.32.0", "model": "a model", "date": "2026-11-23", "assumed": [],
            "peaks": Peaks(**peaks), "parameters": Parameters(**parameters),
            "service": RequestTimes(request=0, prompt_token=0, token_out=0), "points": [],
        }
    ).document()  # fmt: skip


@pytest.mark.parametrize("product", ["NVIDIA-H200", "NVIDIA-NEW-GPU"])
def test_a_calibration_of_the_user_decides_the_speed(tmp_path: Path, product: str) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(yaml.safe_dump(_calibration(product)))
    common = (*LOAD, "--memory", "140GiB", "-o", "json")
    built_in = json.loads(advise("--gpus", "1xH200", *common).stdout)
    result = advise("--gpus", f"1x{product}", "--calibration", file, *common)
    assert result.exit_code == 0, result.output
    slow, fast = (found["arrangements"][0]["tpot"]["p50"] for found in (json.loads(result.stdout), built_in))
    assert slow > 2 * fast


def test_an_unknown_product_is_refused_with_the_way_to_measure_it() -> None:
    result = advise("--gpus", "1xNVIDIA-NEW-GPU", *LOAD)
    assert "Measure any other one with `pdinference calibrate`" in result.output


def test_objectives_of_the_resource_count_where_no_option_says_otherwise(tmp_path: Path) -> None:
    document = yaml.safe_load(LLAMA.read_text())
    document["spec"]["objectives"] = {"ttft": "1s500ms", "tpot": "20ms", "percentile": 95}
    file = tmp_path / "resource.yaml"
    file.write_text(yaml.safe_dump(document))
    command = ["advise", "-f", str(file), "--jobs", "1", "--gpus", "1xH200", *LOAD]
    stated = CliRunner().invoke(main, command)
    assert "Objectives: TTFT 1500 ms, TPOT 20 ms for 95 % of requests" in stated.stdout, stated.output
    assert (
        yaml.safe_load(stated.stdout[stated.stdout.index("apiVersion:") :])["spec"]["objectives"]["ttft"] == "1s500ms"
    )
    assert "TTFT 500 ms, TPOT 30 ms for 99 %" in CliRunner().invoke(main, [*command, *OBJECTIVES]).stdout
    other = CliRunner().invoke(main, [*command, "--percentile", "90"]).stdout
    assert "Objectives: TTFT 1500 ms, TPOT 20 ms for 90 % of requests" in other
    assert other.count("p50 / p90") == 2


def test_the_json_names_the_percentile_that_is_asked_for() -> None:
    result = json.loads(advise("--gpus", "1xH200", *LOAD, *OBJECTIVES, "--percentile", "90", "-o", "json").stdout)
    first = result["arrangements"][0]["ttft"]
    assert first["p50"] < first["p90"]
    assert "p99" not in first


def test_the_facts_of_the_model_come_from_the_status_of_a_stored_resource(tmp_path: Path) -> None:
    document = yaml.safe_load((REPOSITORY / "examples/objectives.yaml").read_text())
    config = yaml.safe_load(LLAMA.read_text())["spec"]["model"]["architecture"]["config"]
    source = validated(document).spec.model.source.identity()
    document["status"] = {"model": {"facts": {"config": config, "source": source}}}
    file = tmp_path / "stored.yaml"
    file.write_text(yaml.safe_dump(document))
    result = CliRunner().invoke(main, ["advise", "-f", str(file), "--jobs", "1", "--gpus", "1xH200", *LOAD])
    assert result.exit_code == 0, result.output
    assert "status:" not in result.stdout


def test_the_screen_says_what_a_reader_would_ask() -> None:
    screen = " ".join(advise("--gpus", "1xH200", *LOAD, *OBJECTIVES).stdout.split())
    assert "Prompt tokens: 1,000. Answer tokens: 50." in screen
    assert "times in ms, or in seconds where a cell says s" in screen
    assert "No autoscaling block: " in screen
    assert "load 10% (assumed)" in screen
    assert "FP8" not in screen
    assert "Tokens a step: unsplit 8,192. KV cache: 16 bits." in screen
    assert screen.endswith("# pdinference advise ... -o yaml | kubectl apply -f -")


def test_a_row_with_fp8_is_explained() -> None:
    load = ("--rate", "3", "--prompt-tokens", "8000", "--answer-tokens", "150", "--seconds", "60")
    screen = " ".join(advise("--gpus", "2xH200", "--transport", "tcp", *load).stdout.split())
    assert "Rows with FP8 KV cache are hints" in screen
    assert "Rows with other tokens a step (maxNumBatchedTokens) are hints" in screen
    assert "Tokens a step: P 8,192, D 2,048, unsplit 8,192. KV cache: 16 bits." in screen
