"""Every spec is rejected with a message, or rendered deterministically."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdinference.checks import examine
from pdinference.manifests import RenderSettings, render
from pdinference.memory.model.config import CONFIG_KEYS
from tests.conftest import EXAMPLES, allowing, example_documents
from tests.memory import configs
from tests.properties.specs import NASTY, SPECS, resource

SETTINGS = RenderSettings(policy=allowing("/srv"))
# The machine may be busy: what counts is the result, not the time that an example takes.
THOROUGH = settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
Json = dict[str, Any]


@THOROUGH
@given(SPECS)
def test_a_spec_is_refused_in_words_or_rendered_always_the_same(spec: Json) -> None:
    found = examine(resource(spec), SETTINGS)
    assert found == examine(resource(copy.deepcopy(spec)), SETTINGS)
    if found.resource is None:
        assert found.problems
        for problem in found.problems:
            assert problem.field.startswith("spec")
            assert problem.message.strip()
            assert "Traceback" not in problem.message
        return
    first, second = render(found.resource, SETTINGS), render(found.resource, SETTINGS)
    assert json.dumps(first.objects) == json.dumps(second.objects)
    assert first.revision == second.revision
    as_yaml = yaml.safe_dump_all(first.objects)
    assert list(yaml.safe_load_all(as_yaml)) == list(first.objects)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NASTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY | st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@THOROUGH
@given(st.data())
def test_no_document_whatever_crashes_the_checks(data: st.DataObject) -> None:
    """An example with something else in the place of one of its parts."""
    example = data.draw(st.sampled_from(EXAMPLES))
    (document, *_) = copy.deepcopy(example_documents(example))
    *parents, last = data.draw(st.sampled_from(sorted(places(document["spec"]), key=str)))
    holder: Any = document["spec"]
    for step in parents:
        holder = holder[step]
    holder[last] = data.draw(JSON_VALUES)
    found = examine(document, SETTINGS)
    if found.resource is not None:
        render(found.resource, SETTINGS)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from places(inner, (*path, step))


@THOROUGH
@given(st.dictionaries(st.text(max_size=12), JSON_VALUES, max_size=6))
def test_no_document_at_all_crashes_the_checks(document: Json) -> None:
    assert examine(document, SETTINGS).problems


CONFIGS = [value for name, value in vars(configs).items() if name.isupper()]
CONFIG_VALUES = st.one_of(st.integers(-2, 300), st.sampled_from([0, 1, 2**31, 2**63, 0.5]), JSON_VALUES)


@THOROUGH
@given(st.sampled_from(CONFIGS), st.dictionaries(st.sampled_from(sorted(CONFIG_KEYS)), CONFIG_VALUES, max_size=3))
def test_no_config_crashes_the_plan(config: Json, changes: Json) -> None:
    roles = {role: {"accelerator": {"products": ["NVIDIA-L4"]}} for role in ("parameter", "decode")}
    model = {"source": {"path": "/a"}, "architecture": {"config": config | changes}}
    found = examine(resource({"model": model, **roles}), SETTINGS)
    assert "Traceback" not in found.memory.message
