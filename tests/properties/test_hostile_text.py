"""Text in every field: harmless text is rendered, and hostile text is rejected or rendered unchanged.

`tests/manifests/every_field.yaml` holds a valid spec around each field. The harmless text comes first, so that no field
passes because the spec around it is refused, or because its text is dropped.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pdinference.checks import examine
from pdinference.manifests import RenderSettings, render
from tests.conftest import allowing
from tests.manifests.every_field import SCHEMA, SPECS
from tests.properties.specs import TRICKS, resource

Json = dict[str, Any]
Place = tuple[str | int, ...]

MARK = "qxzj"
KEY = "{}"
ROLES = ("parameter", "decode")
WITHOUT_SCHEMA = {
    "engine.args.load-format": "auto",
    "engine.args.hf-overrides.key": "value",
    **{f"{role}.podTemplate.metadata.annotations.key": "value" for role in (*ROLES, "router")},
}
"""Text within objects that the schema leaves open, and a valid value."""
ANY_TEXT = {
    "engine.env.*",
    "model.chatTemplate.inline",
    "router.service.annotations.*",
    *(f"{role}.env.*" for role in ROLES),
    *(f"{role}.accelerator.devices.selectors.[]" for role in ROLES),
    *WITHOUT_SCHEMA,
}
"""The fields that take hostile text. In all others a pattern refuses it."""
FORMS = {
    "transfer.lmCache.remoteUrl": "redis://{text}.models:6379",
    "model.source.bucket.endpoint": "https://{text}.example",
}
"""How a text is written into a field that takes none at the end of its value."""
WITHOUT_WORDS = {
    "engine.version",
    "objectives.tpot",
    "objectives.ttft",
    "router.clients.[].cidr",
    "router.route.timeouts.request",
    "router.route.timeouts.backendRequest",
    *(f"{part}.resources.{kind}.{KEY}" for part in (*ROLES, "router") for kind in ("limits", "requests")),
}
"""Fields that take no word at all. `tests/manifests/test_edits.py` shows that they reach a manifest, except objectives,
which are only reported, the version, which only decides what is refused, and names of resources, which are few."""
HOSTILE = [trick for trick in TRICKS if not re.fullmatch(r"[A-Za-z0-9._/:~-]*", trick)]
"""Texts with a character that is in no name, path or address."""
SETTINGS = RenderSettings(
    router_image="registry.example/router:1",
    policy=allowing(
        "/data",
        writable=["/kv", f"/kv{MARK}", "/models", f"/models{MARK}"],
        code={"/compiled": "models", f"/compiled{MARK}": "models"},
        routerImages=["*"],
        runtimeClasses=["*"],
    ),
)


def text_fields(schema: Json, field: tuple[str, ...] = ()) -> Iterator[str]:
    """Every place in a spec where the user writes text: members, items (`[]`), values (`*`) and keys (`{}`) of maps."""
    if schema.get("type") == "string" and "enum" not in schema:
        yield ".".join(field)
    for name, member in schema.get("properties", {}).items():
        if not member.get("description", "").startswith("Refused:"):
            yield from text_fields(member, (*field, name))
    if "items" in schema:
        yield from text_fields(schema["items"], (*field, "[]"))
    if isinstance(values := schema.get("additionalProperties"), dict):
        yield ".".join((*field, KEY))
        yield from text_fields(values, (*field, "*"))


FIELDS = [*sorted(text_fields(SCHEMA)), *WITHOUT_SCHEMA]


def own_copy(spec: Json) -> Json:
    """A copy in which roles share nothing; an alias in YAML would put the text into both."""
    copied: Json = json.loads(json.dumps(spec))
    return copied


def valid_specs() -> Iterator[Json]:
    """Valid specs that together have every field."""
    for spec in map(own_copy, SPECS.values()):
        spec["model"].pop("architecture", None)  # not complete
        yield spec
    spec = own_copy(SPECS["path"])
    for field, value in WITHOUT_SCHEMA.items():
        *holders, last = field.split(".")
        holder = spec
        for name in holders:
            holder = holder.setdefault(name, {})
        holder[last] = value
    yield spec


VALID_SPECS = list(valid_specs())


def places(value: Any, steps: list[str], place: Place = ()) -> Iterator[Place]:
    """Where a spec has a field."""
    match steps:
        case []:
            yield place
        case [step, *_] if step == KEY and isinstance(value, dict):
            yield from ((*place, name, KEY) for name in value)
        case ["*", *rest] if isinstance(value, dict):
            for name, member in value.items():
                yield from places(member, rest, (*place, name))
        case ["[]", *rest] if isinstance(value, list):
            for index, item in enumerate(value):
                yield from places(item, rest, (*place, index))
        case [step, *rest] if isinstance(value, dict) and step in value:
            yield from places(value[step], rest, (*place, step))


class Field:
    """A field in a valid spec, whose text can be replaced."""

    def __init__(self, name: str) -> None:
        found = ((spec, place) for spec in VALID_SPECS for place in places(spec, name.split(".")))
        self._spec, place = next(found)
        self._is_key = place[-1] == KEY
        *self._holders, self._last = place[:-1] if self._is_key else place
        self._form = FORMS.get(name, "{value}{text}")

    def after_its_value(self, text: str) -> str:
        """A text that is like what the field takes, but for its end."""
        value = self._last if self._is_key else self._holder(self._spec)[self._last]
        return self._form.format(value=value, text=text)

    def with_text(self, text: str) -> Json:
        """The spec with this text in the field."""
        spec = own_copy(self._spec)
        holder = self._holder(spec)
        if self._is_key:
            holder[text] = holder.pop(self._last)
        else:
            holder[self._last] = text
        return spec

    def path(self, text: str) -> str:
        """The field as a problem names it."""
        steps = [*self._holders, text if self._is_key else self._last]
        return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)

    def _holder(self, spec: Json) -> Any:
        holder: Any = spec
        for step in self._holders:
            holder = holder[step]
        return holder


def marked_texts(field: Field, text: str) -> list[str] | None:
    """The texts in the manifests that have the mark; None for a spec that is refused because of the field."""
    found = examine(resource(field.with_text(text)), SETTINGS)
    if found.resource is None:
        (problem,) = found.problems
        if len(text) < 64 and text.isprintable():
            assert problem.field == field.path(text)
        return None
    rendered = render(found.resource, SETTINGS)
    return [leaf for leaf in leaves(list(rendered.objects)) if MARK in leaf]


def leaves(value: Any) -> Iterator[str]:
    """Every text in an object, keys of maps included."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield str(key)
            yield from leaves(member)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, str):
        yield value


def has_whole(text: str, leaf: str) -> bool:
    """Whether a leaf has the text: as it is, with `$` doubled for the kubelet, or as a string within JSON."""
    return any(whole in leaf for whole in (text, text.replace("$", "$$"), json.dumps(text)[1:-1].replace("$", "$$")))


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in WITHOUT_WORDS])
def test_harmless_text_in_every_field_reaches_a_manifest(name: str) -> None:
    field = Field(name)
    text = field.after_its_value(MARK)
    seen = marked_texts(field, text)
    assert seen
    assert all(has_whole(text, leaf) for leaf in seen)


@pytest.mark.parametrize("name", FIELDS)
def test_hostile_text_in_every_field_is_refused_or_comes_out_whole(name: str) -> None:
    field = Field(name)
    # Fields share a few patterns: each that refuses all text gets every third trick, another third than its neighbours.
    tricks = HOSTILE if name in ANY_TEXT else HOSTILE[FIELDS.index(name) % 3 :: 3]
    at_the_end = [field.after_its_value(f"{MARK}{trick}") for trick in tricks]
    # Where all are refused, two are enough to see that the pattern covers the beginning, too.
    at_the_beginning = [f"{trick}{MARK}" for trick in (tricks if name in ANY_TEXT else tricks[:2])]
    taken = []
    for text in at_the_end + at_the_beginning:
        seen = marked_texts(field, text)
        if seen is not None:
            taken.append(text)
            assert seen, text
            assert all(has_whole(text, leaf) for leaf in seen), text
    assert bool(taken) == (name in ANY_TEXT), taken
