"""Which fields to use in place of one that the schema lacks.

Tests: tests/api/test_validation.py
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from pdinference.api.v1alpha1.base import models_in
from pdinference.api.v1alpha1.engine import OWNED_ARGUMENTS

_LONGEST: Final = 63
"""Characters of a name that are compared; no field has more."""
_ALIKE: Final = 0.7
"""As `difflib.SequenceMatcher.ratio`. `decoder` and `decode` have 0.92, `min` and `minReplicas` 0.43."""
_MOST_PLACES: Final = 3
_FEW_FIELDS: Final = 6

Path = tuple[str, ...]
Location = tuple[int | str, ...]


_OTHER_WORDS: Final = {
    "prefill": "The role that does prefill is spec.parameter.",
    **dict.fromkeys(("gpu", "gpus", "count"), "Use parallelism.tensor of the role: each rank gets one GPU."),
    **dict.fromkeys(("tensorparallelism", "tp"), "Use parallelism.tensor of the role."),
    **dict.fromkeys(("pipelineparallelism", "pp"), "Use parallelism.pipeline of the role."),
    "datalocal": "Use parallelism.data and parallelism.nodes: each node has data / nodes ranks.",
    "uri": "Use spec.model.source: hf://owner/name is huggingFace: {repository: owner/name}, s3://bucket/folder is "
    "bucket: {uri: s3://bucket/folder}, and pvc://claim/folder is persistentVolumeClaim: {claimName: claim, path: "
    "folder}.",
    "storageuri": "Use spec.model.source.",
    "modelid": "Use spec.model.source.huggingFace.repository.",
    **dict.fromkeys(("s3", "bucketname"), "Use bucket: {uri: s3://BUCKET/FOLDER, secretName: NAME}."),
    **dict.fromkeys(("loadformat", "loader"), "Use spec.model.load.format."),
    **dict.fromkeys(
        ("subpath", "modelpath"), "Use path: the folder of the model in the volume, such as path: llama/main."
    ),
    "namespace": "Leave it out: pods can use only Secrets, ConfigMaps and claims of the resource's own namespace.",
    "token": "A token is in a Secret: use tokenSecret: {name: NAME, key: KEY}.",
    **dict.fromkeys(("template", "containers"), "Use podTemplate of spec.parameter, spec.decode or spec.router."),
    "nodeselector": "Use placement.nodeSelector of the role.",
    "affinity": "Use placement.nodeAffinity of the role, or spec.colocation. Any other affinity goes into podTemplate.",
    "tolerations": "Use placement.tolerations of the role.",
    "topologyspreadconstraints": "Use placement.topologySpread of the role.",
    "min": "Use minReplicas of autoscaling of the role.",
    "max": "Use maxReplicas of autoscaling of the role.",
    **dict.fromkeys(
        ("extraargs", "additionalargs", "vllmargs", "flags"),
        "Use args of spec.engine or of the role, with options of vLLM without their dashes: args: {max-logprobs: 5}.",
    ),
    **dict.fromkeys(("shm", "shmsize", "sharedmemory"), "Leave it out: the operator sizes /dev/shm of P and D."),
    "command": "The operator writes the command. Use args, of spec.engine or of the role.",
    **dict.fromkeys(
        (
            *("volumes", "volumemounts", "initcontainers", "imagepullsecrets"),
            *("livenessprobe", "readinessprobe", "securitycontext"),
        ),
        "Use podTemplate of the role.",
    ),
    "ingress": "Use spec.router.service for a load balancer, or spec.router.route for a Gateway.",
}
"""Fields of other systems (KServe, llm-d, pods) in lower case without separators, and what to use here."""


_FORMS: Final = {
    "model": "{source: {huggingFace: {repository: OWNER/NAME}}}",
    "source": "{huggingFace: {repository: OWNER/NAME}}",
    "huggingFace": "{repository: OWNER/NAME}",
    "modelScope": "{repository: OWNER/NAME}",
    "tokenSecret": "{name: NAME, key: KEY}",
    "hostLocal": "{}",
}
"""By the name of an object: what to write into it, where people write a text or a boolean in its place."""


def form(location: Location) -> str:
    """A sentence that says what to write into an object; empty if its fields say enough."""
    written = _FORMS.get(str(location[-1]))
    return f"Write {location[-1]}: {written}. " if written else ""


def meant(model: type[BaseModel], location: Location) -> str:
    """A sentence that names the field that was meant, or else the fields that there are.

    Args:
        model: The resource.
        location: Of the unknown field.
    """
    *at, name = (step for step in location if isinstance(step, str))
    fields = _fields(model)
    if near := get_close_matches(name[:_LONGEST], fields.get(tuple(at), ()), n=1, cutoff=_ALIKE):
        return f"Did you mean {near[0]}?"
    if ("spec", "engine") in fields and (advice := _OTHER_WORDS.get(_plain(name)) or _of_vllm(name)):
        return advice
    places = sorted((".".join(path) for path, names in fields.items() if name in names), key=len)
    if 0 < len(places) <= _MOST_PLACES:
        few = len(fields.get(tuple(at), ())) <= _FEW_FIELDS
        return f"It is a field of {', '.join(places)}. {members(model, location[:-1]) if few else ''}".rstrip()
    return members(model, location[:-1])


def members(model: type[BaseModel], location: Location) -> str:
    """A sentence that lists the fields of an object; empty if the schema lists none.

    Args:
        model: The resource.
        location: Of the object.
    """
    at = tuple(step for step in location if isinstance(step, str))
    names = _fields(model).get(at)
    return f"Fields of {'.'.join(at)}: {', '.join(dict.fromkeys(names))}." if names else ""


def _of_vllm(name: str) -> str:
    """The field for an option of vLLM, in any of its spellings: `max_model_len`, `maxModelLen`."""
    option = _VLLM_OPTIONS.get(_plain(name))
    return f"For vLLM's --{option}, {OWNED_ARGUMENTS[option]}." if option else ""


def _plain(name: str) -> str:
    return name[:_LONGEST].replace("_", "").replace("-", "").lower()


_VLLM_OPTIONS: Final = {_plain(option): option for option in OWNED_ARGUMENTS}


@cache
def _fields(model: type[BaseModel]) -> Mapping[Path, tuple[str, ...]]:
    """Names of the fields of each object in the spec of a resource."""
    found: dict[Path, tuple[str, ...]] = {}
    pending: list[tuple[Path, Any]] = [(("spec",), model.model_fields["spec"].annotation)]
    while pending:
        path, annotation = pending.pop()
        for each in models_in(annotation):
            members = {field.alias or name: field.annotation for name, field in each.model_fields.items()}
            found[path] = (*found.get(path, ()), *members)
            pending += [((*path, name), member) for name, member in members.items()]
    return found
