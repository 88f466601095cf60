"""Renders Jinja2 templates of YAML to objects. Values cannot change the structure of the YAML.

Values are never parsed as YAML. Each `{{ value }}` is rendered as a numbered placeholder (mark), which is replaced by
the value after parsing. So resources that take the same branches have the same text, whose parsed form is cached:
parsing took half of the time of rendering.
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
"""Context variable that collects the values of a template's marks. Templates cannot refer to this name."""
_MARK: Final = "\0"
"""First character of a mark in parsed YAML. No template contains it, and values are not parsed."""
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_SHAPES: Final = 128
"""Maximum number of cached texts. Each template has a few."""


@pass_context
def _mark(context: Context, value: object) -> str:
    """Store a value, and return its mark.

    Raises:
        jinja2.UndefinedError: The value is undefined.
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
        template: Name of the file in `templates/`, without `.yaml.j2`.
        values: Variables of the template.
    """
    manifest: Manifest = filled(_template(template), values)
    return manifest


def filled(template: Template, values: dict[str, Any]) -> Any:
    """The parsed YAML of a template, with the values in place of their marks."""
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
    """A copy with the values in place of their marks."""
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
