"""Models by URI (`hf://`, `pvc://`, `oci://`, `s3://`), as KServe and llm-d name them.

Tests: tests/conversion/test_kinds.py
"""

import re
from collections.abc import Sequence

from pdinference.conversion.launch import ConversionError, Folder

_FORM = re.compile(r"([a-z0-9+.-]+)://(.+)", re.DOTALL)
MOUNT = "/mnt/models"
"""Folder in which KServe puts the model."""


def source_of(uri: str) -> tuple[str, Sequence[Folder], Sequence[str]]:
    """The model argument of vLLM for a URI, the folders that it needs, and further options.

    Raises:
        ConversionError: No source of a resource is like this URI.
    """
    match = _FORM.fullmatch(uri)
    scheme, rest = (match[1], match[2].strip("/")) if match else ("", uri)
    if scheme in {"", "hf"}:
        repository, _, revision = rest.partition(":")
        return (rest if not scheme else repository), (), ("--revision", revision) if scheme and revision else ()
    if scheme in {"pvc", "pvc+hf"}:
        claim, _, inside = rest.partition("/")
        return MOUNT, (Folder(MOUNT, "persistentVolumeClaim", claim, inside),), ()
    if scheme == "oci":
        return MOUNT, (Folder(MOUNT, "image", rest),), ()
    if scheme == "s3":
        return uri, (), ()
    raise ConversionError(
        f"The model is {uri[:200]!r}. A resource takes it from a hub, a bucket of S3, a claim, an image or a folder of "
        "the nodes. Copy it to a PersistentVolumeClaim, and give that: pvc://CLAIM/FOLDER."
    )
