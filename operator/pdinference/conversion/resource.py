"""Converts one launch of vLLM, or two for P and D, to a PDInference document."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from pdinference.api.names import API_VERSION, ENGINE_ROLES, KIND, NAME_MAX_LENGTH, Role
from pdinference.api.v1alpha1.connectors import LIMITS
from pdinference.api.v1alpha1.roles.role import MOST_NODES
from pdinference.api.v1alpha1.transfer import Transfer
from pdinference.conversion.environment import environment_settings
from pdinference.conversion.image import image_settings
from pdinference.conversion.kv_transfer import role_of
from pdinference.conversion.launch import ConversionError, Launch, Remark
from pdinference.conversion.model_fields import model_of, source_settings
from pdinference.conversion.options import ParsedOptions
from pdinference.conversion.roles import options_of
from pdinference.conversion.settings import settings
from pdinference.memory.split import GPUS_OF_A_HOST, fewest_nodes

_ORDER = ("model", "engine", "parameter", "decode", "transfer", "router", "rollout")
_PORT = "router.service.port"
_NODES = "role.parallelism.nodes"
_COPIES = "role.parallelism.data"
_EXPERT = "role.parallelism.expert"
_CONNECTOR = "transfer.connector"
_TIERS = "role.kvTiers"
_LETTER: Final = {Role.PARAMETER: "P", Role.DECODE: "D"}
_ROLE_WORD = re.compile(r"[-_.]?(?:pre-?fill|decode)(?:er|r|-?(?:worker|server|instance))?s?", re.IGNORECASE)
_STAGES = ("role.parallelism.pipeline", "role.parallelism.layerPartition")


@dataclass(frozen=True)
class Conversion:
    """A converted document with remarks.

    Attributes:
        document: The resource as JSON data.
        remarks: Remarks on settings that were left out or need attention.
    """

    document: dict[str, Any]
    remarks: tuple[Remark, ...]


@dataclass(frozen=True)
class _Half:
    """Options and settings of a role, from one launch."""

    launch: Launch
    options: ParsedOptions
    settings: dict[str, Any]
    remarks: tuple[Remark, ...]


def convert(launches: Mapping[Role, Launch] | Launch, name: str | None = None) -> Conversion:
    """Make a resource.

    Args:
        launches: One launch for both roles, or one for each role.
        name: Name of the resource.

    Raises:
        ConversionError: The launches have no model, or different models.
    """
    if isinstance(launches, Launch):
        half = _half(launches)
        halves, remarks = dict.fromkeys(ENGINE_ROLES, half), [*half.remarks, *_unsplit(half)]
        without: frozenset[str] = frozenset()
    else:
        halves = {role: _half(launch) for role, launch in launches.items()}
        remarks = [*chain.from_iterable(half.remarks for half in halves.values()), *_pair_remarks(halves)]
        without = frozenset({_PORT})
    spec, more = _spec(halves, without)
    half = halves[Role.PARAMETER]
    metadata = {"name": name or _name(_given_name(halves) or model_of(half.options))}
    if half.launch.namespace:
        metadata["namespace"] = half.launch.namespace
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    return Conversion(document, tuple(dict.fromkeys((*remarks, *more))))


def _half(launch: Launch) -> _Half:
    options = options_of(launch)
    found = (
        *source_settings(options, launch),
        *settings(options, launch),
        *environment_settings(options, launch),
        *image_settings(launch.image),
    )
    values = {finding[0]: finding[1] for finding in found if not isinstance(finding, Remark)}
    remarks = (finding for finding in found if isinstance(finding, Remark))
    return _Half(launch, options, {**values, **launch.settings}, (*launch.remarks, *options.remarks, *remarks))


def _unsplit(half: _Half) -> Iterable[Remark]:
    tensor, pipeline = _parallelism(half.settings)
    data, replicas = (half.settings.get(f"role.{name}", 1) for name in ("parallelism.data", "replicas"))
    gpus = tensor * pipeline * int(data) * int(replicas)
    one = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    text = (
        f"One vLLM on {one} becomes P on {one} and D on {one}, so {2 * gpus} in all: each of the two needs all weights."
    )
    if role_of(half.options) is not None:
        text = "This command line starts one of the two roles. The other role gets the same options. " + text
    yield Remark("P and D", text, left_out=False)


def _pair_remarks(halves: Mapping[Role, _Half]) -> Iterable[Remark]:
    models = {role: model_of(half.options) for role, half in halves.items()}
    if len(set(models.values())) > 1:
        raise ConversionError(
            f"P serves {models[Role.PARAMETER][:200]!r} and D {models[Role.DECODE][:200]!r}. Give both the same model."
        )
    ports = {str(half.settings[_PORT]) for half in halves.values() if _PORT in half.settings}
    if ports:
        yield Remark(
            f"--port {', '.join(sorted(ports))}",
            "Clients use the Service in front of the router, at port 80 (router.service.port); P and D have no port "
            "of their own for them.",
        )
    yield Remark(
        "proxy", "The operator runs a router in front of P and D, so no proxy script is needed.", left_out=False
    )


def _parallelism(values: Mapping[str, Any]) -> tuple[int, int]:
    tensor, pipeline = (values.get(f"role.parallelism.{kind}", 1) for kind in ("tensor", "pipeline"))
    return int(tensor), int(pipeline)


def _spec(halves: Mapping[Role, _Half], without: frozenset[str]) -> tuple[dict[str, Any], list[Remark]]:
    of_p, of_d = (dict(halves[role].settings) for role in ENGINE_ROLES)
    remarks = [*_over_nodes(Role.PARAMETER, of_p), *_without_stages(of_d), *_over_nodes(Role.DECODE, of_d)]
    remarks += [*_of_one_host(Role.PARAMETER, of_p), *_of_one_host(Role.DECODE, of_d)]
    tree: dict[str, Any] = {}
    for path in dict.fromkeys(path for path in (*of_p, *of_d) if path not in without):
        kind, _, rest = path.partition(".")
        values = {role: own[path] for role, own in zip(ENGINE_ROLES, (of_p, of_d), strict=True) if path in own}
        chosen = next(iter(values.values()))
        same = len(values) == len(ENGINE_ROLES) and len({repr(value) for value in values.values()}) == 1
        if kind == "role" or (kind == "both" and not same):
            for role, value in values.items():
                _put(tree, f"{role.value}.{rest}", value)
        else:
            _put(tree, f"engine.{rest}" if kind == "both" else path, chosen)
            if not same:
                remarks.append(_differs(path, of_p.get(path), of_d.get(path), chosen))
    return {name: tree[name] for name in _ORDER if name in tree}, remarks


def _without_stages(of_d: dict[str, Any]) -> Iterable[Remark]:
    """Replace the pipeline stages of D, or its nodes of one rank, by tensor parallelism with as many devices."""
    tensor, pipeline = _parallelism(of_d)
    copies = int(of_d.get(_COPIES, 1))
    lost = [path for path in (*_STAGES, *((_NODES,) if copies == 1 else ())) if of_d.pop(path, None) is not None]
    if pipeline > 1:
        of_d["role.parallelism.tensor"] = tensor * pipeline
    if lost:
        where = " on one node" if copies == 1 else ""
        yield Remark(
            "decode.parallelism",
            f"Only P can have pipeline stages, or a rank on several nodes. D gets tensor: {tensor * pipeline}{where}, "
            "so as many GPUs as before.",
            left_out=False,
        )


def _over_nodes(role: Role, own: dict[str, Any]) -> Iterable[Remark]:
    """The nodes of an instance: as many as the file says, or more if a pod would need more GPUs than a host has.

    D with one copy, and data-parallel copies without expert parallelism, stay on one node. If it has too few GPUs,
    `_of_one_host` has the remark.
    """
    tensor, pipeline = _parallelism(own)
    ranks, given, copies = tensor * pipeline, int(own.pop(_NODES, 1)), int(own.get(_COPIES, 1))
    if role is Role.DECODE and copies == 1:
        return
    field = f"{role.value}.{_NODES.removeprefix('role.')}"
    if (why := _on_one_node(own)) is not None:
        if given > 1:
            yield Remark(field, f"An instance has {given} nodes there. {why}")
        return
    parts, word, most = (copies, "copies", MOST_NODES) if copies > 1 else (ranks, "ranks", ranks)
    if parts % given != 0:
        text = (
            f"An instance has {given} pods there, but its options have {parts} {word}, which {given} does not divide."
        )
        yield Remark(field, text)
        given = 1
    elif given > most:
        yield Remark(field, f"An instance has {given} nodes there, and may have {most} at most.")
        given = 1
    nodes = fewest_nodes(parts, ranks * copies, least=given, most=most) or 1
    if nodes == 1:
        return
    own[_NODES] = nodes
    if nodes != given:
        text = f"A host has at most {GPUS_OF_A_HOST} GPUs, so {_LETTER[role]} gets {nodes} pods on nodes of their own."
        yield Remark(field, text, left_out=False)


def _on_one_node(own: Mapping[str, Any]) -> str | None:
    """Why an instance is on one node; None if it may be on several."""
    if int(own.get(_COPIES, 1)) > 1 and not own.get(_EXPERT):
        return "Data-parallel ranks are on several nodes only with expert: true. Use more replicas."
    connector = own.get(_CONNECTOR, Transfer().connector)
    if connector in LIMITS and not LIMITS[connector].several_nodes:
        return f"With transfer.connector {connector} it is on one node."
    if any(path.startswith(_TIERS) for path in own):
        return "With kvTiers it is on one node."
    return None


def _of_one_host(role: Role, settings: Mapping[str, Any]) -> Iterable[Remark]:
    """A remark on a pod that needs more GPUs than a host has."""
    tensor, pipeline = _parallelism(settings)
    data, nodes = int(settings.get(_COPIES, 1)), int(settings.get(_NODES, 1))
    ranks = tensor * pipeline
    gpus = ranks * data // nodes
    if gpus <= GPUS_OF_A_HOST:
        return
    letter = _LETTER[role]
    takes = f"{letter} takes {gpus} GPUs of one node, and a host has at most {GPUS_OF_A_HOST}."
    if data > 1 and ranks <= GPUS_OF_A_HOST:
        fits = GPUS_OF_A_HOST // ranks
        text = (
            f"{takes} The data-parallel ranks of an instance of {letter} share one pod; only with expert: true may "
            f"they be on several nodes. If the model fits {fits * ranks} GPUs, set data: {fits} and raise replicas (to "
            f"{-(-data // fits)} for as many GPUs); else use GPUs with more memory."
        )
        yield Remark(f"{role.value}.parallelism.data", text, left_out=False)
    else:
        text = f"{takes} Lower it, with GPUs of more memory or a quantized model."
        yield Remark(f"{role.value}.parallelism.tensor", text, left_out=False)


def _differs(path: str, of_p: Any, of_d: Any, chosen: Any) -> Remark:
    shown = [repr(value) if value is not None else "nothing" for value in (of_p, of_d)]
    return Remark(
        path, f"P has {shown[0]} and D {shown[1]}, but the two need the same: {chosen!r} is taken.", left_out=False
    )


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set a member by its path. Names of options and variables do not contain dots."""
    *parents, last = path.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    if not (isinstance(value, dict) and not value and last in tree):
        tree[last] = value


def _given_name(halves: Mapping[Role, _Half]) -> str:
    """The name of the container or workload, without a word for the role; empty if P and D have different ones."""
    names = {half.launch.name for half in halves.values()}
    if len(names) > 1:
        names = {_ROLE_WORD.sub("", name).strip("-_.") for name in names}
    return next(iter(names)) if len(names) == 1 else ""


def _name(model: str) -> str:
    """A name for the resource, from the name of a model or container."""
    text = re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rpartition("/")[2].lower()).strip("-")
    named = text if text[:1].isalpha() else f"model-{text}"
    return named[:NAME_MAX_LENGTH].strip("-")
