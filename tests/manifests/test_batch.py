"""The children of a PDBatch, pinned by a golden file and by properties."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio import client

from pdinference.api import names
from pdinference.api.v1alpha1 import PDBatch
from pdinference.engine.batch import ServiceAccess
from pdinference.manifests import Manifest, RenderSettings
from pdinference.manifests.batch import render_batch, render_output
from pdinference.runner.run import Exit
from tests.conftest import BATCH_EXAMPLE, Golden

Make = Callable[..., dict[str, Any]]
GOLDEN = Path(__file__).parent / "golden" / "batch.yaml"
SERVICE = ServiceAccess("http://llama.models.svc", "llama")
LOCKED = ServiceAccess("https://llama.models.svc", "llama", "llama-tls", "llama-keys")
SETTINGS = RenderSettings(
    runner_image="registry.example/operator:1",
    operator_namespace="pdinference-system",
    operator_labels=(("app.kubernetes.io/name", "pdinference-operator"),),
)


def children(document: dict[str, Any], service: ServiceAccess = SERVICE) -> dict[str, Manifest]:
    return {o["kind"]: o for o in render_batch(PDBatch.model_validate(document), service, SETTINGS)}


def pod(document: dict[str, Any], service: ServiceAccess = SERVICE) -> dict[str, Any]:
    found: dict[str, Any] = children(document, service)["Job"]["spec"]["template"]["spec"]
    return found


def test_the_example_renders_as_pinned(golden: Golden) -> None:
    (document,) = [d for d in yaml.safe_load_all(BATCH_EXAMPLE.read_text(encoding="utf-8")) if d["kind"] == "PDBatch"]
    text = yaml.safe_dump_all(children(document).values(), sort_keys=False, width=120)
    golden(GOLDEN, text)


def test_output_into_a_configmap_renders_as_pinned(golden: Golden, batch_document: Make) -> None:
    document = batch_document(output={"configMap": {"name": "answers"}})
    manifests = [render_output(PDBatch.model_validate(document)), *children(document).values()]
    golden(GOLDEN.with_stem("batch-configmap"), yaml.safe_dump_all(manifests, sort_keys=False, width=120))


def test_api_key_and_tls_render_as_pinned(golden: Golden, batch_document: Make) -> None:
    manifests = children(batch_document(), LOCKED).values()
    golden(GOLDEN.with_stem("batch-locked"), yaml.safe_dump_all(manifests, sort_keys=False, width=120))


@pytest.mark.parametrize("name", [None, "team-a"])
def test_of_the_secrets_only_the_named_key_and_the_certificate_are_mounted(
    batch_document: Make, name: str | None
) -> None:
    spec = pod(batch_document(**({"apiKeyName": name} if name else {})), LOCKED)
    volumes = {volume["name"]: volume["secret"] for volume in spec["volumes"] if "secret" in volume}
    key = name or "batch"
    assert {name: (one["secretName"], one["items"]) for name, one in volumes.items()} == {
        "api-key": ("llama-keys", [{"key": key, "path": key}]),
        "certificate": ("llama-tls", [{"key": "tls.crt", "path": "tls.crt"}]),
    }
    (container,) = spec["containers"]
    assert {f"--api-key-file=/api-key/{key}", "--certificate-file=/certificate/tls.crt"} <= set(container["args"])
    assert "--url=https://llama.models.svc" in container["args"]


def test_the_image_is_pulled_with_the_secrets_of_the_router(batch_document: Make) -> None:
    assert "imagePullSecrets" not in pod(batch_document())
    private = ServiceAccess("http://llama.models.svc", "llama", pull_secrets=("registry", "mirror"))
    assert pod(batch_document(), private)["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]


def test_no_field_is_misspelt(batch_document: Make) -> None:
    placement = {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "low"}
    document = batch_document(placement=placement, timeoutSeconds=9, ttlSecondsAfterFinished=60)
    for manifest in children(document, LOCKED).values():
        getattr(client, f"V1{manifest['kind']}").model_validate(manifest)
    assert pod(document).items() >= placement.items()


def test_children_are_owned_and_of_no_pdinference(batch_document: Make) -> None:
    for manifest in children(batch_document()).values():
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("PDBatch", "7a2d", True)
        assert manifest["metadata"]["labels"].items() >= names.batch_labels("nightly").items()
        assert not {names.LABEL_NAME, names.LABEL_ROLE} & manifest["metadata"]["labels"].keys()


def test_the_runner_holds_no_token_and_meets_the_restricted_standard(batch_document: Make) -> None:
    spec = pod(batch_document())
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["command"][0] == "pdinference"
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_only_the_operator_reaches_the_runner(batch_document: Make) -> None:
    policy = children(batch_document())["NetworkPolicy"]["spec"]
    job = children(batch_document())["Job"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= job["template"]["metadata"]["labels"].items()
    ((source,),) = [rule["from"] for rule in policy["ingress"]]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "pdinference-system"}
    assert source["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "pdinference-operator"}


def test_the_job_and_the_runner_agree_on_what_is_final(batch_document: Make) -> None:
    fail, ignore = children(batch_document())["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert (fail["action"], fail["onExitCodes"]["values"]) == ("FailJob", [Exit.UNFIT])
    assert ignore["action"] == "Ignore"


def test_a_claim_for_both_is_mounted_once(batch_document: Make) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "results", "path": "in/a.jsonl"}}
    spec = pod(batch_document(input=claim))
    assert [volume["name"] for volume in spec["volumes"]] == ["output"]
    (container,) = spec["containers"]
    assert container["volumeMounts"] == [
        {"name": "output", "mountPath": "/output"},
        {"name": "output", "mountPath": "/input", "readOnly": True},
    ]
    assert "--input=/input/in/a.jsonl" in container["args"]


def test_another_claim_is_mounted_for_reading_only(batch_document: Make) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "prompts", "path": "a.jsonl"}}
    spec = pod(batch_document(input=claim, output={"persistentVolumeClaim": {"claimName": "results", "path": "x/y"}}))
    volumes = {volume["name"]: volume["persistentVolumeClaim"] for volume in spec["volumes"]}
    assert volumes == {"output": {"claimName": "results"}, "input": {"claimName": "prompts", "readOnly": True}}
    assert "--output=/output/x/y" in spec["containers"][0]["args"]


def test_every_setting_reaches_the_runner(batch_document: Make) -> None:
    document = batch_document(concurrency=3, maxRetries=7, requestTimeoutSeconds=9, model="lora")
    arguments = pod(document)["containers"][0]["args"]
    assert {"--concurrency=3", "--max-retries=7", "--request-timeout=9", "--model=lora"} <= set(arguments)
    assert "--default-model=llama" in arguments


def test_settings_of_the_job_are_set_only_when_they_are_wanted(batch_document: Make) -> None:
    plain = children(batch_document())["Job"]["spec"]
    assert plain["suspend"] is False
    assert not {"activeDeadlineSeconds", "ttlSecondsAfterFinished"} & plain.keys()
    chosen = children(batch_document(suspend=True, timeoutSeconds=5, ttlSecondsAfterFinished=60))["Job"]["spec"]
    assert (chosen["suspend"], chosen["activeDeadlineSeconds"], chosen["ttlSecondsAfterFinished"]) == (True, 5, 60)


def test_resources_are_the_users_over_the_defaults(batch_document: Make) -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}
    container = pod(batch_document(resources=resources))["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


@pytest.mark.parametrize(("service", "status"), [(SERVICE, Exit.UNFIT), (LOCKED, Exit.TRY_AGAIN)])
def test_the_runner_understands_its_arguments(batch_document: Make, service: ServiceAccess, status: Exit) -> None:
    """The real command line, up to its files that are not there."""
    from click.testing import CliRunner  # noqa: PLC0415

    from pdinference.cli import main  # noqa: PLC0415

    container = pod(batch_document(model="lora"), service)["containers"][0]
    arguments = [a for a in container["args"] if not a.startswith(("--report", "--metrics-port"))]
    result = CliRunner().invoke(main, [*container["command"][1:], *arguments, "--metrics-port=0"])
    assert result.exit_code == status
    assert "Error" not in result.output, result.output


def test_output_into_a_configmap_needs_an_account_and_no_volume(batch_document: Make) -> None:
    document = batch_document(output={"configMap": {"name": "answers"}})
    found = children(document)
    assert list(found)[-1] == "Job", "what its pod needs comes first"
    spec = pod(document)
    assert spec["serviceAccountName"] == "nightly-batch"
    assert [volume["name"] for volume in spec["volumes"]] == ["api-access", "input"]
    assert "--output-config-map=models/answers" in spec["containers"][0]["args"]
    (subject,) = found["RoleBinding"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "nightly-batch", "namespace": "models"}
    config_map = render_output(PDBatch.model_validate(document))
    assert config_map is not None
    assert "data" not in config_map
    for manifest in (*found.values(), config_map):
        getattr(client, f"V1{manifest['kind']}").model_validate(manifest)
        assert [owner["uid"] for owner in manifest["metadata"]["ownerReferences"]] == ["7a2d"]


def test_output_onto_a_volume_needs_neither(batch_document: Make) -> None:
    assert children(batch_document()).keys() == {"NetworkPolicy", "Job"}
    assert render_output(PDBatch.model_validate(batch_document())) is None
