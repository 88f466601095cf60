"""The webhook, called like by the API server."""

from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from pdinference.admission.review import NotAReviewError, review_tasks, reviewed
from pdinference.admission.webhook import admission_routes
from pdinference.api.v1alpha1.source import ModelSource
from pdinference.cli import main
from pdinference.isolation.calls import InProcess
from pdinference.manifests import RenderSettings
from tests.memory.configs import LLAMA_8B

Json = dict[str, Any]
Make = Callable[..., Json]
PINNED = {"accelerator": {"products": ["NVIDIA-H200"]}}
TCP = {"path": "Network"}
WRONG = {"decode": {"replicas": -1, "parallelism": {"pipeline": 2}}}


def review(new: Json | None, old: Json | None = None, operation: str = "") -> Json:
    operation = operation or ("UPDATE" if old else "CREATE")
    request = {"uid": "u-1", "operation": operation, "object": new, "oldObject": old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answer(new: Json | None, old: Json | None = None) -> Json:
    response: Json = reviewed(review(new, old), RenderSettings())["response"]
    return response


def test_what_is_right_gets_in(document: Make) -> None:
    assert answer(document(parameter=PINNED, transfer=TCP)) == {"uid": "u-1", "allowed": True}


def test_a_p_that_is_not_pinned_gets_in_with_a_warning(document: Make) -> None:
    found = answer(document(transfer=TCP))
    assert found["allowed"] is True
    (warning,) = found["warnings"]
    assert warning.startswith("spec.parameter.accelerator.products: P is not pinned to a product")
    assert warning.endswith("`kubectl get nodes -L nvidia.com/gpu.product` shows the products in the cluster."), (
        "not cut"
    )
    assert "warnings" not in answer(document(decode={"replicas": -1})), "first things first"
    assert "warnings" not in answer(document(parameter={"accelerator": {"type": "CPU"}}, engine={"image": "a/cpu:1"}))


def test_what_is_wrong_does_not_and_hears_everything_at_once(document: Make) -> None:
    found = answer(document(**WRONG))
    assert found["allowed"] is False
    first, *problems = found["status"]["message"].splitlines()
    assert first == "PDInference llama is not valid."
    assert [line.split(":")[0] for line in problems] == [
        "  spec.decode.replicas",
        "  spec.decode.parallelism.pipeline",
    ]


def test_the_command_line_says_the_same(document: Make, tmp_path: Any) -> None:
    file = tmp_path / "resource.yaml"
    file.write_text(str(document(**WRONG)))  # Python's literals are YAML here
    for command in ("validate", "render"):
        result = CliRunner().invoke(main, [command, "-f", str(file)])
        assert result.exit_code == 1
        assert result.output == f"Error: {file}: {answer(document(**WRONG))['status']['message']}\n"


def test_what_was_wrong_before_may_be_relabelled_and_deleted(document: Make) -> None:
    old = document(**WRONG)
    relabelled = {**old, "metadata": {**old["metadata"], "labels": {"team": "a"}}}
    assert answer(relabelled, old)["allowed"] is True
    leaving = document(decode={"replicas": -2})
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    assert answer(leaving, old)["allowed"] is True
    assert answer(document(decode={"replicas": -2}), old)["allowed"] is False


def early(new: Json) -> Json:
    response: Json = reviewed(review(new), RenderSettings(), early=True)["response"]
    return response


def test_schema_violations_are_refused_early_with_all_other_problems(document: Make) -> None:
    made = document(decode={"replicas": "2"}, engine={"args": {"nonsense": 1}})
    assert early(made)["status"] == answer(made)["status"]
    assert [line.split(":")[0] for line in early(made)["status"]["message"].splitlines()[1:]] == [
        "  spec.decode.replicas",
        "  spec.engine.args.nonsense",
    ]


def test_what_fits_the_schema_is_not_judged_before_others_had_their_say(document: Make) -> None:
    made = document(engine={"args": {"nonsense": 1}})
    assert early(made) == {"uid": "u-1", "allowed": True}
    assert answer(made)["allowed"] is False


def test_a_name_may_be_generated(document: Make) -> None:
    """The API server makes the name after the early review."""
    made = document(decode={"replicas": -1})
    made["metadata"] = {"generateName": "llama-"}
    assert [line for line in early(made)["status"]["message"].splitlines() if "metadata" in line] == []
    del made["spec"]["decode"]
    assert early(made)["allowed"] is True
    made["metadata"] = {"generateName": "LLAMA-"}
    assert "metadata.name" in early(made)["status"]["message"]


def test_facts_that_the_operator_found_out_count(document: Make) -> None:
    made = document(decode={"accelerator": {"products": ["NVIDIA-L4"]}})
    old = document()
    source = {"path": "/models/llama"}
    old["status"] = {"model": {"facts": {"source": ModelSource.model_validate(source).identity(), "config": LLAMA_8B}}}
    assert "does not fit" in answer(made, old)["status"]["message"]
    assert answer(made)["allowed"] is True


def test_warnings_are_short_enough_to_be_shown(document: Make) -> None:
    roles = {role: {"accelerator": {"products": ["NVIDIA-L4"]}} for role in ("parameter", "decode")}
    model = {"source": {"path": "/a"}, "architecture": {"config": LLAMA_8B}, "trustRemoteCode": True}
    found = answer(document(model=model, memoryPolicy="Warn", **roles))
    assert found["allowed"] is True
    assert len(found["warnings"]) == 4
    assert max(map(len, found["warnings"])) <= 256


@pytest.mark.parametrize("body", [{}, {"apiVersion": "admission.k8s.io/v1"}, review(None) | {"apiVersion": "v1beta1"}])
def test_what_is_no_review_is_not_answered(body: Json) -> None:
    with pytest.raises(NotAReviewError):
        reviewed(body, RenderSettings())


WRONG_BATCH = {
    "input": {},
    "concurrency": 0,
    "resources": {"requests": {"cpu": 2}, "limits": {"cpu": "500m"}},
}


def test_batches_are_looked_at_too(batch_document: Make, tmp_path: Any) -> None:
    assert answer(batch_document())["allowed"] is True, "that there is no such PDInference yet is no error"
    message = answer(batch_document(**WRONG_BATCH))["status"]["message"]
    first, *problems = message.splitlines()
    assert first == "PDBatch nightly is not valid."
    assert [line.split(":")[0] for line in problems] == [
        "  spec.concurrency",
        "  spec.input",
        "  spec.resources.requests.cpu",
    ]
    file = tmp_path / "batch.yaml"
    file.write_text(str(batch_document(**WRONG_BATCH)))
    result = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert (result.exit_code, result.output) == (1, f"Error: {file}: {message}\n")
    file.write_text(str(batch_document()))
    result = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert (result.exit_code, result.output) == (0, f"{file}: PDBatch nightly is valid.\n")


def test_answers_in_a_configmap_need_the_right_to_write_one(batch_document: Make, tmp_path: Any) -> None:
    batch = batch_document(output={"configMap": {"name": "answers"}})
    message = answer(batch)["status"]["message"]
    assert "spec.output.configMap: The operator may not write ConfigMaps." in message
    assert "chart value rbac.batchConfigMaps: true" in message
    file = tmp_path / "batch.yaml"
    file.write_text(str(batch))
    offline = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert (offline.exit_code, "rbac.batchConfigMaps" in offline.output) == (1, True)
    assert CliRunner().invoke(main, ["validate", "--batch-config-maps", "-f", str(file)]).exit_code == 0
    suspended = batch_document(output={"configMap": {"name": "answers"}}, suspend=True)
    assert answer(suspended, batch)["allowed"] is True, "one that was accepted can be stopped"


def test_only_mutable_fields_of_a_batch_can_be_changed(batch_document: Make) -> None:
    old = batch_document()
    assert answer(batch_document(suspend=True, timeoutSeconds=5, ttlSecondsAfterFinished=60), old)["allowed"] is True
    refused = answer(batch_document(concurrency=3), old)
    assert "spec: Only suspend, timeoutSeconds" in refused["status"]["message"]


async def test_over_http(document: Make) -> None:
    registry = CollectorRegistry()
    app = web.Application()
    app.add_routes(admission_routes(InProcess(review_tasks(RenderSettings())), registry))
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        for made in (document(), document(**WRONG)):
            async with session.post(server.make_url("/validate"), json=review(made)) as response:
                assert response.status == 200
                assert (await response.json())["response"]["uid"] == "u-1"
        for body in ("", "[]", "{}", "\x00"):
            async with session.post(server.make_url("/validate"), data=body) as response:
                assert response.status == 400
        for made in (document(), document(**WRONG)):
            async with session.post(server.make_url("/validate-early"), json=review(made)) as response:
                assert response.status == 200
                assert (await response.json())["response"]["allowed"] is (made == document())
    counts = {
        result: registry.get_sample_value("pdinference_admission_reviews_total", {"result": result})
        for result in ("allowed", "refused")
    }
    assert counts == {"allowed": 1, "refused": 2}, "what is allowed early is counted when it comes again"
