"""`pdinference calibrate`: the Job that measures, and the fit of its log."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pdinference.cli.commands import main
from pdinference.performance.calibration import H200
from pdinference_advise.commands.calibrate.files import read_calibration
from tests.advise.fitting.test_fitting import measured

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1000, "max_position_embeddings": 8192,
}  # fmt: skip
RESOURCE = {
    "apiVersion": "pdinference.io/v1alpha1",
    "kind": "PDInference",
    "metadata": {"name": "llama", "namespace": "models"},
    "spec": {
        "model": {
            "source": {"huggingFace": {"repository": "a/b", "tokenSecret": {"name": "hub", "key": "token"}}},
            "dtype": "bfloat16",
        },
        "parameter": {"accelerator": {"products": ["NVIDIA-L40S"]}},
    },
}
POINTS = [point.model_dump(by_alias=True) for point in measured(H200, 0.0)]


def run(*words: str) -> Any:
    return CliRunner().invoke(main, ["calibrate", *words])


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    resource, config = tmp_path / "r.yaml", tmp_path / "config.json"
    resource.write_text(yaml.safe_dump(RESOURCE), encoding="utf-8")
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(resource), str(config)


def test_the_job_needs_neither_model_nor_secret_and_meets_the_restricted_standard(files: tuple[str, str]) -> None:
    result = run("measure", "-f", files[0], "--model-config", files[1])
    assert result.exit_code == 0, result.output
    (job,) = yaml.safe_load_all(result.output)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["metadata"]["name"], job["metadata"]["namespace"]) == ("calibrate-llama", "models")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "hub" not in json.dumps(container["env"])
    assert all("emptyDir" in volume for volume in pod["volumes"])
    assert not {"initContainers"} & pod.keys()
    assert {"livenessProbe", "ports"}.isdisjoint(container)


def test_the_program_gets_the_config_and_the_options_that_change_a_step(files: tuple[str, str]) -> None:
    (job,) = yaml.safe_load_all(run("measure", "-f", files[0], "--model-config", files[1]).output)
    command = [word.replace("$$", "$") for word in job["spec"]["template"]["spec"]["containers"][0]["command"]]
    assert command[:3] == ["python3", "-I", "-c"]
    compile(command[3], "script", "exec")
    options = dict(word.removeprefix("--").split("=", 1) for word in command[4:] if "=" in word)
    assert json.loads(options["config"]) == CONFIG
    assert json.loads(options["about"])["resource"]["metadata"]["name"] == "llama"
    arguments = command[command.index("--") + 1 :]
    assert "--dtype=bfloat16" in arguments
    assert not [word for word in arguments if word.startswith(("--host", "--port", "--kv-transfer-config"))]


def raw(tmp_path: Path, **changes: Any) -> str:
    line = {
        "apiVersion": "pdinference.io/measurement-v1",
        "about": {"resource": RESOURCE | {"spec": {**RESOURCE["spec"], "mode": "Aggregated"}}},  # type: ignore[dict-item]
        "config": CONFIG,
        "vllm": "0.32.0",
        "date": "2026-11-23",
        "stepTokens": 8192,
        "points": POINTS,
        "overheads": [{"tokens": 100, "seconds": 0.002}],
        "tokenCpu": 0.00004,
        **changes,
    }
    file = tmp_path / "raw.log"
    file.write_text("warm-up ...\n" + json.dumps(line, separators=(",", ":")) + "\n", encoding="utf-8")
    return str(file)


def test_the_log_of_the_job_becomes_a_calibration_that_can_be_read(tmp_path: Path) -> None:
    output = tmp_path / "calibration.yaml"
    result = run("fit", raw(tmp_path), "-o", str(output))
    assert result.exit_code == 0, result.output
    assert "Median error of the times that were held out" in result.output
    with output.open(encoding="utf-8") as source:
        found = read_calibration(source)
    assert (found.product, found.vllm, found.service.token_out) == ("NVIDIA-L40S", "0.32.0", 0.00004)
    assert found.calibration.product == "NVIDIA-L40S"


def test_a_product_without_known_peaks_needs_them(tmp_path: Path) -> None:
    result = run("fit", raw(tmp_path), "--product", "NVIDIA-X1")
    assert result.exit_code == 1
    assert "--peak-tflops and --bandwidth-gbs" in result.output


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": []}, "no point of kind prompt"),
        ({"stepTokens": 0}, "stepTokens"),
        ({"more": 1}, "more"),
        ({"about": {}}, "names no PDInference"),
        (
            {"points": [{**POINTS[0], "kind": "prompt", "tokens": 0}, *POINTS]},
            "points.0: A prompt has at least one token.",
        ),
        ({"about": {"resource": {}}}, "A resource without a kind without a name is not valid"),
    ],
)
def test_a_measurement_with_a_fault_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    result = run("fit", raw(tmp_path, **changes))
    assert (result.exit_code, type(result.exception)) == (1, SystemExit), "no traceback"
    assert message in result.output


def test_a_file_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    result = run("fit", raw(tmp_path), "-o", str(tmp_path / "absent/calibration.yaml"))
    assert result.exit_code == 1
    assert result.stderr.endswith(
        f"Error: {tmp_path}/absent/calibration.yaml cannot be written: No such file or directory.\n"
    )


def test_a_python_that_does_not_exist_is_an_error_in_words(files: tuple[str, str]) -> None:
    result = run("measure", "-f", files[0], "--model-config", files[1], "--local", "--python", "/absent/python")
    assert result.exit_code == 1
    assert result.stderr == "Error: --python: /absent/python cannot be run: No such file or directory.\n"


def test_a_log_without_a_measurement_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "raw.log"
    file.write_text("vLLM did not start\n", encoding="utf-8")
    result = run("fit", str(file))
    assert result.exit_code == 1
    assert "has no measurement" in result.output
