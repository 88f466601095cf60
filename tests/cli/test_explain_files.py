"""`pdinference explain -f`: objects from an untrusted file."""

import json

import pytest
import yaml
from click.testing import CliRunner

from pdinference.cli import main
from tests.cli.explain_command import Command, Make, at_rest, dump, invoke
from tests.conftest import REPOSITORY
from tests.inference.budgeted import BUDGET, IMAGE
from tests.inference.world import World


async def test_files_give_what_the_cluster_gives(document: Make, command: Command) -> None:
    world = World(document(**BUDGET))
    await at_rest(world)
    world.edit(**BUDGET, engine=IMAGE)
    live = await command.found(world)
    result = await invoke("-f", "-", "-o", "yaml", text=dump(world))
    assert result.exit_code == 0, result.output
    found = yaml.safe_load(result.stdout)
    absent, *unknown = found.pop("unknown")
    assert absent == "An object that the file lacks counts as absent."
    source = "They are those of the options (--router-image, --policy, --model-image, ...)."
    sources = (source, "They are the defaults. No operator's Deployment serves the namespace ns.")
    assert unknown == [line.replace(*reversed(sources)) for line in live.pop("unknown")]
    assert found == live


async def test_a_file_with_the_last_valid_spec_is_enough(document: Make) -> None:
    world = World(document())
    revision = await at_rest(world)
    world.edit(engine={"args": {"no-such-option": 1}})
    result = await invoke("llama", "-f", "-", "-o", "json", text=dump(world))
    found = json.loads(result.stdout)
    assert (found["target"], found["writes"]) == (revision, [])


NAMED = {"apiVersion": "pdinference.io/v1alpha1", "kind": "PDInference"}
TWO = yaml.safe_dump_all([{**NAMED, "metadata": {"name": name}, "spec": {}} for name in "ab"])
BOMB = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 8)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        ((), "kind: Pod", "<stdin> has no PDInference."),
        (("c",), TWO, "<stdin> has no PDInference of the name c."),
        ((), TWO, "<stdin> has several resources: default/a, default/b. Add NAME, or -n NAMESPACE."),
        ((), "a: [", "is not YAML"),
        ((), yaml.safe_dump({**NAMED, "metadata": {"name": ["a"]}}), "<stdin> has a PDInference that cannot be read."),
        ((), f"{yaml.safe_dump({**NAMED, 'metadata': {'name': 'a'}})}{BOMB}", "has a PDInference that cannot be read."),
    ],
)
async def test_a_file_that_says_too_little_or_too_much_is_refused(
    words: tuple[str, ...], text: str, message: str
) -> None:
    result = await invoke(*words, "-f", "-", text=text)
    assert result.exit_code == 1
    assert message in result.output


async def test_objects_that_cannot_be_read_are_counted(document: Make) -> None:
    world = World(document())
    await at_rest(world)
    broken = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": 7, "namespace": {}}, "spec": 3}
    result = await invoke("-f", "-", "-o", "json", text=dump(world, broken=broken))
    assert "1 Deployment cannot be read and count as absent." in json.loads(result.stdout)["unknown"]


def test_the_example_of_a_new_resource_needs_no_cluster() -> None:
    result = CliRunner().invoke(main, ["explain", "-f", str(REPOSITORY / "examples/tiny-cpu.yaml")])
    assert result.exit_code == 0
    assert "create  StatefulSet tiny-parameter-" in result.output
