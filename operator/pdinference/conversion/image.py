"""Converts the image of a container to `spec.engine.image`.

Tests: tests/conversion/test_containers.py
"""

import re
from collections.abc import Iterator

from pdinference.api.v1alpha1.engine import Engine
from pdinference.checks.options import is_official, listed_version
from pdinference.conversion.launch import Finding, Remark, Unresolved
from pdinference.conversion.options import release_of

_SERVER = re.compile(r"(?:.*/)?vllm-openai(?:-[\w.-]*)?(?:[:@].*)?")
_DEFAULT: str = Engine.model_fields["image"].default


def starts_server(image: str) -> bool:
    """Whether the entry point of an image is vLLM's server: an image of vLLM, or by its name a copy of one."""
    return _SERVER.fullmatch(image) is not None


def image_settings(image: str | None) -> Iterator[Finding]:
    """Keep a custom image, and vLLM's own of a release with a list of options. Replace others by the default."""
    if image is None or image in {_DEFAULT, _DEFAULT.removeprefix("docker.io/")}:
        return
    version, _ = release_of(image)
    if isinstance(image, Unresolved):
        yield Remark(f"image {image}", f"The default is {_DEFAULT}; set engine.image for another one.")
    elif is_official(image) and not listed_version(image):
        yield Remark(
            f"image {image}",
            f"The default is {_DEFAULT}: options were compared with vLLM {version}, and P and D need its connectors. "
            "Set engine.image for another one.",
        )
    else:
        yield "engine.image", image
    if not isinstance(image, Unresolved) and not is_official(image):
        yield Remark(
            "engine.image",
            f"Options were compared with vLLM {version}. The image needs a similar version, and the package nixl.",
            left_out=False,
        )
