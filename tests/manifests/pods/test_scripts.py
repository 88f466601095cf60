"""Programs of ours reach pods as files. No command has one in it, or anything else that nobody can read."""

import ast
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from pdinference.api.names import LABEL_REVISION
from pdinference.api.v1alpha1 import PDBatch, PDInference
from pdinference.api.validation import InvalidResourceError
from pdinference.checks import examine
from pdinference.engine.batch import ServiceAccess
from pdinference.engine.command import script
from pdinference.manifests import Manifest, RenderSettings, render
from pdinference.manifests.batch import render_batch
from pdinference.manifests.pods.pod_security import containers_of
from tests.conftest import EXAMPLES, FOR_EVERY_FIELD, example_documents
from tests.manifests.rendering import SETTINGS, children
from tests.properties.specs import SPECS
from tests.properties.specs import resource as document_of

Make = Callable[..., PDInference]
Json = dict[str, Any]

LONGEST = 1000
FILES: Json = {"transfer": {"connector": "SharedStorage", "sharedStorage": {"claimName": "kv"}}}
NODES: Json = {"parameter": {"parallelism": {"pipeline": 2, "nodes": 2}}}
LAUNCHER: Json = {"transfer": {"hostLocal": {"parameter": 1, "decode": 2}}}
DISK: Json = {"decode": {"kvTiers": {"cpu": {"size": "2Gi"}, "disk": {"size": "10Gi"}}}}
CACHE: Json = {
    "model": {
        "source": {"huggingFace": {"repository": "a/b", "revision": "0" * 40}},
        "cache": {"persistentVolumeClaim": {"claimName": "cache"}},
    }
}
LAYOUTS = {
    "plain": {},
    "files": FILES,
    "nodes": NODES,
    "launcher": LAUNCHER,
    "disk tier": DISK,
    "cache": CACHE,
    "nodes and disk tier": {**NODES, **DISK},
}
EVERY_FIELD: dict[str, Json] = yaml.safe_load((Path(__file__).parents[1] / "every_field.yaml").read_text())
BATCH_PARTS: tuple[Json, ...] = ({}, {"output": {"configMap": {"name": "answers"}}})


def templates(objects: Any) -> Iterator[Manifest]:
    """All pod templates."""
    yield from (o["spec"]["template"] for o in objects if "containers" in (_pod(o) or ()))


def _pod(manifest: Manifest) -> Any:
    template = (manifest.get("spec") or {}).get("template")
    return template.get("spec") if isinstance(template, dict) else None


def words(template: Manifest) -> Iterator[str]:
    """All words that processes of a pod get: commands, arguments, and those of probes and hooks."""
    for _, container in containers_of(template):
        yield from (*container.get("command", ()), *container.get("args", ()))
        probes = [container.get(name) for name in ("startupProbe", "readinessProbe", "livenessProbe")]
        for handler in (*probes, *(container.get("lifecycle") or {}).values()):
            yield from ((handler or {}).get("exec") or {}).get("command", ())


def too_long(objects: Any, of_users: int = 0) -> list[str]:
    """Words that are too long to read, where those that hold the user's text may have so many characters more."""
    found = (word for template in templates(objects) for word in words(template))
    return [word[:80] for word in found if len(word) > LONGEST + of_users]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_person_can_read_the_commands_of_every_example(path: Path) -> None:
    for document in example_documents(path):
        if document["kind"] == "PDInference":
            assert not too_long(render(PDInference.model_validate(document), SETTINGS).objects)
        else:
            batch = PDBatch.model_validate(document)
            assert not too_long(render_batch(batch, ServiceAccess("http://llama", "llama"), SETTINGS))


@pytest.mark.parametrize("spec", EVERY_FIELD.values(), ids=EVERY_FIELD)
def test_and_those_of_resources_that_set_every_field(document: Callable[..., Json], spec: Json) -> None:
    settings = RenderSettings(router_image=SETTINGS.router_image, policy=FOR_EVERY_FIELD)
    resource = PDInference.model_validate({**document(), "spec": spec})
    assert not too_long(render(resource, settings).objects)


@pytest.mark.parametrize("spec", LAYOUTS.values(), ids=LAYOUTS)
def test_and_those_of_every_layout(resource: Make, spec: Json) -> None:
    objects = render(resource(**spec), SETTINGS).objects
    assert list(templates(objects))
    assert not too_long(objects)


@pytest.mark.parametrize("parts", BATCH_PARTS, ids=["volume", "ConfigMap"])
def test_and_those_of_batches(batch_document: Callable[..., Json], parts: Json) -> None:
    batch = PDBatch.model_validate(batch_document(**parts))
    assert not too_long(render_batch(batch, ServiceAccess("http://llama", "llama"), SETTINGS))


@given(SPECS)
def test_and_those_of_any_valid_spec(spec: Json) -> None:
    found = examine(document_of(spec), SETTINGS)
    if found.resource is not None:
        assert not too_long(render(found.resource, SETTINGS).objects, of_users=len(json.dumps(spec)))


def files(resource: PDInference) -> dict[str, dict[str, str]]:
    """Name and data of each ConfigMap."""
    return {name: manifest["data"] for (kind, name), manifest in children(resource).items() if kind == "ConfigMap"}


def programs(*names: str) -> dict[str, str]:
    return {f"{name}.py": script(name) for name in names}


def test_a_resource_whose_pods_need_no_program_has_no_config_map(resource: Make) -> None:
    for spec in ({}, CACHE, {"decode": {"kvTiers": {"cpu": {"size": "2Gi"}}}}):
        assert files(resource(**spec)) == {}


@pytest.mark.parametrize(
    ("spec", "parameter", "decode"),
    [
        (FILES, ["pdinference_shared_files", "with_modules"], ["pdinference_shared_files", "with_modules"]),
        (NODES, ["group_member"], []),
        (LAUNCHER, [], ["host_engines", "pdinference_cuda_ipc", "pdinference_nixl", "with_modules"]),
        (DISK, [], ["bound_disk_tier"]),
        ({**NODES, **DISK}, ["group_member"], ["bound_disk_tier"]),
    ],
    ids=["files", "nodes", "launcher", "disk tier", "nodes and disk tier"],
)
def test_each_role_has_the_programs_that_its_pods_run(
    resource: Make, spec: Json, parameter: list[str], decode: list[str]
) -> None:
    rendered = render(resource(**spec), SETTINGS)
    expected = {
        f"llama-{role}-{rendered.revision}": programs(*names)
        for role, names in (("parameter", parameter), ("decode", decode))
        if names
    }
    assert files(resource(**spec)) == expected


@pytest.mark.parametrize("spec", LAYOUTS.values(), ids=LAYOUTS)
def test_every_file_that_a_command_names_is_in_the_container(resource: Make, spec: Json) -> None:
    found = files(resource(**spec))
    for template in templates(render(resource(**spec), SETTINGS).objects):
        maps = {v["name"]: v["configMap"]["name"] for v in template["spec"]["volumes"] if "configMap" in v}
        for _, container in containers_of(template):
            mounts = {m["mountPath"]: m for m in container["volumeMounts"] if m["name"] in maps}
            named = [Path(word) for word in container["command"] if word.startswith("/etc/pdinference/scripts/")]
            assert bool(named) is bool(mounts)
            for path in named:
                mount = mounts[str(path.parent)]
                assert mount["readOnly"] is True
                assert path.name in found[maps[mount["name"]]]


def test_config_maps_are_immutable_and_come_before_the_workloads(resource: Make) -> None:
    objects = render(resource(**NODES, **DISK), SETTINGS).objects
    kinds = [manifest["kind"] for manifest in objects]
    assert kinds.count("ConfigMap") == 2
    assert max(i for i, kind in enumerate(kinds) if kind == "ConfigMap") < kinds.index("StatefulSet")
    for manifest in objects:
        if manifest["kind"] == "ConfigMap":
            assert manifest["immutable"] is True


def test_another_text_of_a_program_is_another_revision(resource: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of the old one keep theirs: its ConfigMap has the revision in its name."""
    with_launcher, plain = resource(**LAUNCHER), resource()
    before = [render(one, SETTINGS).revision for one in (with_launcher, plain)]
    monkeypatch.setattr("pdinference.manifests.pods.scripts.script", lambda name: f"# {name}")
    after = render(with_launcher, SETTINGS)
    assert after.revision != before[0]
    assert render(plain, SETTINGS).revision == before[1]
    (config_map,) = (manifest for manifest in after.objects if manifest["kind"] == "ConfigMap")
    assert config_map["metadata"]["labels"][LABEL_REVISION] == after.revision


def test_an_overlay_cannot_put_other_files_in_their_place(resource: Make) -> None:
    volume = {"name": "pdinference-scripts", "configMap": {"name": "mine"}}
    overlay = {"podTemplate": {"spec": {"volumes": [volume]}}}
    with pytest.raises(InvalidResourceError, match="The operator uses the volume pdinference-scripts"):
        render(resource(**LAUNCHER, decode=overlay), SETTINGS)


@pytest.mark.parametrize("name", ["bound_disk_tier", "group_member", "host_engines", "with_modules"])
def test_a_program_needs_nothing_but_the_standard_library(name: str) -> None:
    tree = ast.parse(script(name))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in imported} <= sys.stdlib_module_names
