"""Webhook, conditions and command line reject a resource with the same messages, all at once."""

import asyncio
import json
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e.cluster.build import binary
from pdinference.api.crd import custom_resource_definition
from pdinference.cli import main
from pdinference.cluster.client import Json
from pdinference.cluster.errors import ApiError
from pdinference.cluster.kinds import RESOURCE
from tests.checks.wrong_specs import WRONG, Wrong
from tests.integration.operators import Operators
from tests.integration.webhook import Webhook
from tests.integration.world import World
from tests.waiting import until

NAMED_OTHERWISE = {
    # A schema names the map for its keys, and the element for its list.
    "label": {"spec.decode.placement.nodeSelector"},
    "twice": {"spec.decode.accelerator.products[1]"},
    "adapters": {"spec.model.lora.adapters", "spec.model.lora.adapters[1]"},
    # The type of an option is compared before anybody asks who owns the option.
    "owned": {"spec.decode.args.kv-transfer-config"},
    # With a wrong type no rule is looked at.
    "memory-and-more": {"spec.decode.replicas"},
    "source-and-option": {"spec.model.source"},
    "everything": {"spec.decode.replicas", "spec.engine.gpuMemoryUtilization", "spec.model.trustRemoteCode"},
}
"""What the API server names where it does not name all of the fields, and no others."""
_BLAMED = re.compile(
    r"(?:The PDInference \S+ is invalid: )?(?:\* )?(?:<nil>: Invalid value: (?:\S+ )?)?((?:spec|metadata)\b[^: ]*): "
)

STORABLE = {name: wrong for name, wrong in WRONG.items() if isinstance(wrong.spec, dict) and not wrong.name}


def resource(world: World, name: str, wrong: Wrong) -> Json:
    return {**world.resource(wrong.name or name), "spec": wrong.spec}


async def kubectl(world: World, verb: str, document: Json, *flags: str) -> tuple[bool, str]:
    """Whether it succeeded, and its output."""
    line = [str(binary("kubectl")), f"--kubeconfig={world.cluster.kubeconfig}", verb, "--filename=-", *flags]

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(line, input=json.dumps(document), capture_output=True, text=True, check=False)

    done = await asyncio.to_thread(run)
    return done.returncode == 0, done.stdout + done.stderr


def command_line(document: Json, folder: Path) -> list[str]:
    """The problems that `pdinference validate` finds."""
    file = folder / "resource.json"
    file.write_text(json.dumps(document))
    return listed(CliRunner().invoke(main, ["validate", "-f", str(file)]).output)


def listed(text: str) -> list[str]:
    """The problems in a refusal."""
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def fields(problems: list[str]) -> tuple[str, ...]:
    return tuple(problem.partition(": ")[0] for problem in problems)


def named(said: str) -> set[str]:
    """The fields that the API server blames, keys of maps written as we do."""
    found = {blamed[1] for line in said.splitlines() if (blamed := _BLAMED.match(line))}
    return {re.sub(r"\[([a-z]+)\]", r".\1", field) for field in found}


async def test_kubectl_hears_at_once_what_the_command_line_says(
    world: World, webhook: Webhook, operators: Operators, tmp_path: Path
) -> None:
    await world.apply("early", engine={"args": {"nonsense": 1}})  # before an operator runs, nobody objects
    operator = await operators.start(*webhook.flags)
    await webhook.insists()
    for name, wrong in WRONG.items():
        document = resource(world, name, wrong)
        accepted, said = await kubectl(world, "apply", document)
        assert not accepted, name
        assert f"denied the request: PDInference {wrong.name or name} is not valid." in said
        assert listed(said) == command_line(document, tmp_path), name
        assert fields(listed(said)) == wrong.fields, name
    assert await operator.metric("pdinference_admission_reviews_total") >= len(WRONG)


async def test_without_the_webhook_the_schema_or_a_condition_reports_problems(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    await operators.start()
    for name, wrong in WRONG.items():
        document = resource(world, name, wrong)
        accepted, said = await kubectl(world, "apply", document)
        if accepted:
            problems = (await world.refusal_of(name)).partition("Correct it: ")[2]
            assert problems == "; ".join(command_line(document, tmp_path)), name
        else:
            assert named(said) == NAMED_OTHERWISE.get(name, set(wrong.fields)), said


async def test_an_invalid_stored_resource_can_be_relabelled_or_fully_fixed(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    await world.apply("early", engine={"args": {"nonsense": 1}})
    await operators.start(*webhook.flags)
    await webhook.insists()
    path = RESOURCE.path(world.namespace, "early")
    await world.api.merge(path, {"metadata": {"labels": {"team": "a"}, "finalizers": ["example.com/x"]}})
    with pytest.raises(ApiError) as refusal:
        await world.api.merge(path, {"spec": {"decode": {"replicas": "2"}}})
    assert fields(listed(refusal.value.message)) == ("spec.decode.replicas", "spec.engine.args.nonsense")
    await world.api.merge(path, {"spec": {"engine": {"args": None}}})
    await world.api.merge(path, {"metadata": {"finalizers": None}})


async def test_dry_run_matches_apply_also_with_generated_names(
    world: World, webhook: Webhook, operators: Operators
) -> None:
    await operators.start(*webhook.flags)
    await webhook.insists()
    pinned = {"accelerator": {"products": ["NVIDIA-H200"]}}
    good = world.resource("good", parameter=pinned, transfer={"path": "Network"})
    bad = {**world.resource("bad"), "spec": WRONG["everything"].spec}
    for verb, flag in (("apply", "--dry-run=server"), ("create", "--dry-run=server"), ("create", "--validate=ignore")):
        accepted, said = await kubectl(world, verb, bad, flag)
        assert not accepted
        assert fields(listed(said)) == WRONG["everything"].fields
    assert (await kubectl(world, "apply", good, "--dry-run=server"))[0]
    assert await world.get(RESOURCE, "good") is None

    for document in (good, bad):
        document["metadata"] = {"namespace": world.namespace, "generateName": "llama-"}
    assert (await kubectl(world, "create", good))[0]
    accepted, said = await kubectl(world, "create", bad)
    assert not accepted
    assert fields(listed(said)) == WRONG["everything"].fields

    good["spec"]["model"] = {"source": {"huggingFace": {"repository": "a/b"}}, "trustRemoteCode": True}
    accepted, said = await kubectl(world, "create", good)
    assert accepted
    assert said.count("Warning:") == 1, said


async def test_conditions_report_a_resource_stored_before_a_rule_existed(
    world: World, operators: Operators, tmp_path: Path
) -> None:
    await world.install_crd(lax_definition())
    try:
        for name, wrong in STORABLE.items():
            await until(partial(stored, world, name, wrong), f"{name} is stored")
        await operators.start()
        for name, wrong in STORABLE.items():
            said = (await world.refusal_of(name)).partition("Correct it: ")[2]
            assert said == "; ".join(command_line(resource(world, name, wrong), tmp_path)), name
    finally:
        for name in STORABLE:
            await world.delete(RESOURCE, name)
        await world.install_crd(custom_resource_definition())


async def stored(world: World, name: str, wrong: Wrong) -> bool:
    """The API server takes a moment to forget the old rules."""
    try:
        await world.api.apply(RESOURCE.path(world.namespace, name), resource(world, name, wrong), manager="test")
    except ApiError:
        return False
    return True


def lax_definition() -> Json:
    """The CRD as a version of the operator without any rules for specs would have it."""
    definition: Json = json.loads(json.dumps(custom_resource_definition()))
    (version,) = definition["spec"]["versions"]
    del version["subresources"]["scale"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    del schema["x-kubernetes-validations"]
    return definition
