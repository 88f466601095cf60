"""Jinja2 templates of YAML into objects, so that no value can break out of its place.

Values never become YAML. Each `{{ value }}` is written as a mark with a number, and the values are put in the place of
the marks when the YAML is parsed. So the text, and what it is parsed to, is the same for all resources that take the
same branches, and is kept: parsing took half of the time of rendering.
"""

import json
from functools import cache, lru_cache
from typing import Any, Final

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, Undefined, pass_context
from jinja2.runtime import Context

from pdinference.api import names
from pdinference.engine import lifecycle

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON data."""

_VALUES: Final = "values of the marks"
"""Variable of a template in which the values of its marks are collected; no template can name it."""
_MARK: Final = "\0"
"""Begins a mark in parsed YAML. No template has this character, and values are not parsed."""
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_SHAPES: Final = 128
"""Texts of which the parsed form is kept: each template has a few."""


@pass_context
def _mark(context: Context, value: object) -> str:
    """Keep a value, and write its mark.

    Raises:
        jinja2.UndefinedError: The template was not given this value.
    """
    if isinstance(value, Undefined):
        str(value)  # raises, naming the variable
    values = context[_VALUES]
    values.append(value)
    return f'"\\0{len(values) - 1}"'


_ENVIRONMENT = Environment(
    loader=PackageLoader("pdinference.manifests"),
    undefined=StrictUndefined,
    finalize=_mark,
    autoescape=False,  # noqa: S701 - this is not HTML; values are not part of the text
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(names=names, lifecycle=lifecycle)


def fill(template: str, **values: Any) -> Manifest:
    """Fill in one template.

    Args:
        template: Name of the file in `templates/`, less `.yaml.j2`.
        values: What the template refers to.
    """
    manifest: Manifest = filled(_template(template), values)
    return manifest


def filled(template: Template, values: dict[str, Any]) -> Any:
    """The YAML of a template, parsed, with the values in their places."""
    marked: list[object] = []
    text = template.render({**values, _VALUES: marked})
    return _unmarked(_parsed(text), marked)


@cache
def _template(name: str) -> Template:
    return _ENVIRONMENT.get_template(f"{name}.yaml.j2")


@lru_cache(maxsize=_SHAPES)
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _unmarked(node: Any, values: list[object]) -> Any:
    """A copy with the values in the place of their marks."""
    if isinstance(node, dict):
        return {_unmarked(key, values): _unmarked(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [_unmarked(value, values) for value in node]
    if isinstance(node, str) and node.startswith(_MARK):
        return _plain(values[int(node[1:])])
    return node


def _plain(value: object) -> Any:
    """A copy as JSON data: tuples become lists, and members of enumerations their values."""
    return value if type(value) in _SCALARS else json.loads(json.dumps(value))
