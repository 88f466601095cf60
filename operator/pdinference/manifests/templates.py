"""Jinja2 templates of YAML into objects, so that no value can break out of its place.

Every `{{ value }}` is written as JSON, and JSON is YAML: text is quoted and escaped, maps and lists stand in
flow style.
"""

import json
import re
from functools import cache
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, Undefined

from pdinference.api import names
from pdinference.engine import lifecycle

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON data."""

_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def _as_json(value: object) -> str:
    """Write a value as JSON that a YAML parser reads the same.

    Raises:
        jinja2.UndefinedError: The template was not given this value.
    """
    if isinstance(value, Undefined):
        str(value)  # raises, naming the variable
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    # JSON's `\ud83d\ude00` is two characters to YAML, and YAML refuses raw control characters that JSON allows; `\U` is
    # one escape that YAML reads for any character. Outside strings, JSON has no such characters.
    return _NOT_ASCII.sub(lambda match: f"\\U{ord(match[0]):08x}", text)


_ENVIRONMENT = Environment(
    loader=PackageLoader("pdinference.manifests"),
    undefined=StrictUndefined,
    finalize=_as_json,
    autoescape=False,  # noqa: S701 - this is not HTML; _as_json escapes for YAML
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
    text = _template(template).render(values)
    manifest: Manifest = yaml.load(text, Loader=yaml.CSafeLoader)
    return manifest


@cache
def _template(name: str) -> Template:
    return _ENVIRONMENT.get_template(f"{name}.yaml.j2")
