"""`pdinference history`, `diff` and `undo`, as a person uses them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pdinference.api import names
from pdinference.cli import main
from pdinference.cli.history.changes import diff, in_one_line
from pdinference.cli.history.gitops import managed_by
from pdinference.cluster import client
from pdinference.cluster.cache import Cache
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import CONTROLLER_REVISION, RESOURCE
from pdinference.cluster.state.records import resource_record
from tests.cli.kubeconfig import KUBECONFIG
from tests.cluster.fake_api import FakeApi

Json = dict[str, Any]
PATH = RESOURCE.path("team-a", "llama")


class World:
    """A resource on an API server in memory, and the commands on it."""

    def __init__(self, kubeconfig: Path) -> None:
        self.api = FakeApi()
        self.kubeconfig = kubeconfig
        self.history = History(self.api, Cache())

    def edit(self, image: str, *, valid: bool = True, served: bool = True, replicas: int = 1, **metadata: Any) -> None:
        """The user stores a spec, and the operator handles it."""
        metadata = {"name": "llama", "namespace": "team-a", **metadata}
        spec = {"image": image, "decode": {"replicas": replicas}}
        body = self.api.put(PATH, {"metadata": metadata, "spec": spec})
        if valid:
            written, pruned = asyncio.run(self.history.remember(resource_record(names.KIND, body), served=served))
            assert written.settled
            assert pruned.settled

    def run(self, *words: str) -> Result:
        command, *rest = words
        return self.run_without_name(command, "llama", *rest)

    def run_without_name(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--kubeconfig", str(self.kubeconfig)])

    @property
    def spec(self) -> Json:
        spec: Json = self.api.objects[PATH]["spec"]
        return spec


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    world = World(kubeconfig)
    monkeypatch.setattr(client, "ApiServer", lambda *_, **__: world.api)
    return world


def test_history_lists_each_edit_and_marks_the_stored_spec(world: World) -> None:
    for image in "aba":
        world.edit(image)
    result = world.run("history")
    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines()] == [
        ["REVISION", "STORED", "SERVED", "CHANGES"],
        ["2", "yes", "(the", "oldest", "that", "is", "kept)"],
        ["*", "3", "yes", "image", "b", "->", "a"],
    ]


def test_history_as_json_has_the_specs(world: World) -> None:
    for image in "ab":
        world.edit(image)
    first, second = json.loads(world.run("history", "-o", "json").stdout)["revisions"]
    assert (first["revision"], first["current"], first["spec"]["image"]) == (1, False, "a")
    assert (second["revision"], second["current"], second["changes"]) == (2, True, "image a -> b")


def test_history_says_when_the_stored_spec_is_not_in_it(world: World) -> None:
    world.edit("a")
    world.edit("broken", valid=False)
    result = world.run("history")
    assert "The stored spec is not in the history: it is invalid" in result.stderr
    assert "*" not in result.stdout


def test_diff_shows_the_last_edit_unless_revisions_are_named(world: World) -> None:
    for image in "abc":
        world.edit(image)
    options: tuple[tuple[str, ...], ...] = ((), ("--revision", "1"), ("--revision", "1", "--with", "2"))
    shown = {words: world.run("diff", *words).output.splitlines() for words in options}
    expected: dict[tuple[str, ...], tuple[str, str, str, str]] = {
        (): ("revision 2", "stored", "b", "c"),
        ("--revision", "1"): ("revision 1", "stored", "a", "c"),
        ("--revision", "1", "--with", "2"): ("revision 1", "revision 2", "a", "b"),
    }
    for words, (name, other, before, after) in expected.items():
        lines = shown[words]
        assert lines[:2] == [f"--- {name}", f"+++ {other}"]
        assert [line for line in lines[2:] if line[0] in "+-"] == [f"-  image: {before}", f"+  image: {after}"]


def test_diff_of_an_invalid_spec_is_against_the_last_valid_one(world: World) -> None:
    for image in "ab":
        world.edit(image)
    world.edit("broken", valid=False)
    assert "-  image: b\n+  image: broken\n" in world.run("diff").output


@pytest.mark.parametrize("command", ["diff", "undo"])
def test_a_revision_that_is_not_kept_is_named_with_those_that_are(world: World, command: str) -> None:
    option = "--revision" if command == "diff" else "--to-revision"
    world.edit("a")
    result = world.run(command, option, "7")
    assert result.exit_code == 1
    assert result.output == "Error: The history holds no revision 7. It holds: 1.\n"
    result = world.run(command)
    assert result.output == "Error: The history holds no other spec than the stored one.\n"


def test_undo_prints_the_change_and_stores_the_spec_before(world: World) -> None:
    for image in "ab":
        world.edit(image)
    result = world.run("undo")
    assert result.exit_code == 0, result.output
    assert "-  image: b\n+  image: a\n" in result.output
    assert result.output.endswith("llama has the spec of revision 1 again.\n")
    assert world.spec == {"image": "a", "decode": {"replicas": 1}}


def test_undo_twice_toggles_between_two_specs_that_served(world: World) -> None:
    for image in "ab":
        world.edit(image)
    for image in "abab":
        assert world.run("undo").exit_code == 0
        assert world.spec["image"] == image
        world.edit(image)


def test_undo_goes_to_the_last_spec_that_served_and_names_those_that_did_not(world: World) -> None:
    world.edit("a")
    world.edit("typo", served=False)
    world.edit("typo too", served=False)
    result = world.run("undo")
    assert "Revision 2 is left out: it has never served requests. Store it again with --to-revision 2." in result.output
    assert world.spec["image"] == "a"
    world.edit("a")
    result = world.run("undo")
    assert result.exit_code == 1
    assert "No other spec in the history has served requests. Revision 3 is the last one" in result.output
    assert world.spec["image"] == "a"
    assert world.run("history").output.splitlines()[2].split()[:3] == ["3", "no", "image"]


def test_a_revision_that_never_served_is_restored_by_its_number_with_a_warning(world: World) -> None:
    world.edit("typo", served=False)
    world.edit("a")
    result = world.run("undo", "--to-revision", "1", "-o", "json")
    assert "Warning: Revision 1 has never served requests." in result.stderr
    assert json.loads(result.stdout)["served"] is False
    assert world.spec["image"] == "typo"


def test_entries_of_an_older_operator_are_restored_as_before(world: World) -> None:
    for image in "ab":
        world.edit(image, served=False)
    for path, body in world.api.objects.items():
        if path.startswith(CONTROLLER_REVISION.path("team-a")):
            del body["metadata"]["annotations"]
    assert "never served" not in world.run("undo").output
    assert world.spec["image"] == "a"


def test_undo_to_a_revision_restores_that_one_and_a_dry_run_none(world: World) -> None:
    for image in "abc":
        world.edit(image)
    world.api.requests.clear()
    result = world.run("undo", "--to-revision", "1", "--dry-run")
    assert "+  image: a" in result.output
    assert world.spec["image"] == "c"
    assert world.api.writes() == 0
    world.run("undo", "--to-revision", "1")
    assert world.spec["image"] == "a"
    result = world.run("undo", "--to-revision", "1")
    assert result.output == "llama has the spec of revision 1 already. Nothing was written.\n"


def test_undo_keeps_the_number_of_decode_pods(world: World) -> None:
    world.edit("a", replicas=1)
    world.edit("b", replicas=5)
    world.run("undo")
    assert world.spec == {"image": "a", "decode": {"replicas": 5}}


def test_undo_of_an_invalid_spec_keeps_the_pods_that_there_are(world: World) -> None:
    world.edit("a", replicas=3)
    world.edit("broken", replicas=99, valid=False)
    result = world.run("undo")
    assert result.exit_code == 0, result.output
    assert world.spec == {"image": "a", "decode": {"replicas": 3}}


class _WrittenBetween(FakeApi):
    """An API server where another client writes between the read and the write of a command."""

    written: Json | None = None

    async def replace(self, path: str, manifest: Json, **query: str) -> Json:
        if self.written is not None:
            self.put(path, {**self.objects[path], **self.written})
            self.written = None
        return await super().replace(path, manifest, **query)


@pytest.fixture
def written_between(world: World) -> _WrittenBetween:
    """The API server of a world in which an image was replaced by another."""
    api = _WrittenBetween()
    world.api, world.history = api, History(api, Cache())
    for image in "ab":
        world.edit(image)
    return api


def test_undo_writes_nothing_over_an_edit_that_came_between(world: World, written_between: _WrittenBetween) -> None:
    written_between.written = {"spec": {"image": "c", "decode": {"replicas": 1}}}
    result = world.run("undo")
    assert result.exit_code == 1
    assert result.stderr == "Error: llama was changed meanwhile. Nothing was written; try again.\n"
    assert world.spec["image"] == "c"


def test_undo_writes_although_the_operator_wrote_the_status_between(
    world: World, written_between: _WrittenBetween
) -> None:
    written_between.written = {"status": {"observedGeneration": 2}}
    result = world.run("undo")
    assert result.exit_code == 0, result.output
    assert world.spec["image"] == "a"
    assert written_between.objects[PATH]["status"] == {"observedGeneration": 2}


def test_undo_ends_although_every_write_is_a_conflict(world: World) -> None:
    for image in "ab":
        world.edit(image)
    world.api.fail("replace", PATH, *[ApiError(409, "Conflict", "the object has been modified")] * 100)
    result = world.run("undo")
    assert result.exit_code == 1
    assert result.stderr == "Error: llama was changed meanwhile. Nothing was written; try again.\n"
    assert world.spec["image"] == "b"


def test_a_resource_that_does_not_exist_is_named_with_how_to_list_the_others(world: World) -> None:
    for command in ("history", "diff", "undo"):
        result = world.run(command)
        assert result.exit_code == 1
        assert result.output == (
            "Error: The namespace team-a has no PDInference llama. `kubectl pdi status -n team-a` lists those that it "
            "has.\n"
        )


def test_without_a_name_the_only_resource_of_the_namespace_is_chosen(world: World) -> None:
    for image in "ab":
        world.edit(image)
    assert "image a -> b" in world.run_without_name("history").output
    assert "-  image: a\n+  image: b\n" in world.run_without_name("diff").output
    assert world.run_without_name("undo").output.endswith("llama has the spec of revision 1 again.\n")
    world.api.put(RESOURCE.path("team-a", "second"), {"metadata": {"name": "second", "namespace": "team-a"}})
    for command in ("history", "diff", "undo"):
        result = world.run_without_name(command)
        assert result.exit_code == 1
        assert "has 2 PDInferences (llama, second). Write the NAME of one." in result.output


def test_diff_and_undo_as_json_have_the_fields_that_differ(world: World) -> None:
    world.edit("a")
    world.edit("b")
    changed = json.loads(world.run("diff", "-o", "json").stdout)
    assert changed == {
        "from": "revision 1",
        "to": "stored",
        "changes": [{"path": "image", "before": "a", "after": "b"}],
    }
    back = [{"path": "image", "before": "b", "after": "a"}]
    undone = {"resource": "llama", "revision": 1, "served": True, "skipped": [], "altered": [], "changes": back}
    assert json.loads(world.run("undo", "--dry-run", "-o", "json").stdout) == {**undone, "written": False}
    assert json.loads(world.run("undo", "-o", "json").stdout) == {**undone, "written": True}
    assert world.spec["image"] == "a"
    nothing = json.loads(world.run("undo", "--to-revision", "1", "-o", "json").stdout)
    assert (nothing["changes"], nothing["written"]) == ([], False)


def test_undo_warns_of_whoever_will_write_the_edit_again(world: World) -> None:
    world.edit("a")
    world.edit("b", annotations={"argocd.argoproj.io/tracking-id": "x"})
    result = world.run("undo", "--dry-run")
    assert result.stderr.startswith("Warning: Argo CD manages this resource and will write the undone edit again.")
    world.edit("b", annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    result = world.run("undo", "--dry-run")
    assert result.stderr.startswith("Warning: The next `kubectl apply` of the same file brings the undone edit back.")
    world.edit("b")
    assert not world.run("undo", "--dry-run").stderr


def test_entries_of_others_and_forged_ones_are_not_shown(world: World) -> None:
    for image in "ab":
        world.edit(image)
    place = CONTROLLER_REVISION.path("team-a")
    (first, *_) = [path for path in world.api.objects if path.startswith(place)]
    body = world.api.objects[first]
    world.api.objects[f"{place}/forged"] = {**body, "data": {"spec": {"image": "evil"}}}
    other = {**body["metadata"], "ownerReferences": [{**body["metadata"]["ownerReferences"][0], "uid": "other"}]}
    world.api.objects[f"{place}/other"] = {**body, "metadata": other}
    result = world.run("history")
    assert "evil" not in result.output
    assert len(result.output.splitlines()) == 3


def test_the_namespace_is_that_of_the_context(world: World) -> None:
    assert client.default_namespace(world.kubeconfig) == "team-a"
    assert client.default_namespace(world.kubeconfig, "other") == "default"
    result = world.run("history", "--context", "missing")
    assert result.exit_code == 1
    assert "has no context missing. Pass --context with one of: work, other." in result.output


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"a": 1}, {"a": 2}, "a 1 -> 2"),
        ({"a": {"b": 1, "c": 1}}, {"a": {"b": 1}}, "a.c removed"),
        ({}, {"a": {"b": 1}}, "a {...} added"),
        ({"a": [1]}, {"a": [2]}, "a [...] -> [...]"),
        ({"a": {"b": 1}}, {"a": 1}, "a {...} -> 1"),
        ({"a": None}, {"a": 1}, "a None -> 1"),
        ({}, dict.fromkeys("abcde", 1), "a 1 added, b 1 added, c 1 added, and 2 more"),
        ({"a": "x"}, {"a": "y\x1b[31m" * 30}, f"a x -> {('y [31m' * 30)[:39]}…"),
        ({"a": 1}, {"a": 1}, ""),
    ],
)
def test_changes_stand_in_one_line_of_bounded_length(before: Json, after: Json, words: str) -> None:
    assert in_one_line(before, after) == words


def test_a_diff_holds_no_control_characters_and_equal_specs_have_none() -> None:
    lines = list(diff({"a": "x"}, {"a": "\x1b[31m\x07"}, "one", "two"))
    assert all(line.isprintable() for line in lines)
    assert list(diff({"a": 1, "b": 2}, {"b": 2, "a": 1}, "one", "two")) == []


@pytest.mark.parametrize(
    ("metadata", "program"),
    [
        ({"labels": {"argocd.argoproj.io/instance": "x"}}, "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}, "Flux"),
        ({"annotations": {"meta.helm.sh/release-name": "x"}}, "Helm"),
        ({"managedFields": [{"manager": "argocd-controller"}]}, "Argo CD"),
        ({"labels": {"app.kubernetes.io/instance": "x"}, "managedFields": [{"manager": "kubectl"}]}, ""),
        ({}, ""),
    ],
)
def test_programs_that_manage_a_resource_are_known_by_their_marks(metadata: Json, program: str) -> None:
    assert managed_by(metadata) == program
