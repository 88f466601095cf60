"""Finds launches of vLLM in commands: `vllm serve`, `python -m vllm...`, in a shell or in `docker run`."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pdinference.conversion.docker import Container, docker_run
from pdinference.conversion.image import starts_server
from pdinference.conversion.launch import ConversionError, Launch, Remark, Unresolved
from pdinference.conversion.shell import commands

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SERVER = re.compile(r"vllm\.entrypoints\.(openai\.)?api_server|vllm\.entrypoints\.cli\.main")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_SILENT = frozenset(
    {"env", "exec", "nohup", "time", "sudo", "setsid", "command", "uv", "run", "then", "do", "else", "{", "!"}
)
"""Prefixes of a command that are ignored, because they have no effect in a pod."""
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_DEPTH = 4
"""Maximum nesting of shells and containers."""


def starts_in(text: str, depth: int = 0) -> list[Launch]:
    """All launches of vLLM in a shell script, in order.

    Raises:
        ConversionError: The script cannot be read.
    """
    environment: dict[str, str] = {}
    found: list[Launch] = []
    for words in commands(text):
        if _only_assigns(words):
            environment |= dict(_assignments(words))
        else:
            found += starts_of(words, environment, depth)
    return found


def starts_of(words: Sequence[str], environment: Mapping[str, str] | None = None, depth: int = 0) -> list[Launch]:
    """The launches of vLLM in one command, including commands in a script that it passes to a shell."""
    environment, words = dict(environment or {}), list(words)
    for at, word in enumerate(words):
        program, rest = word.rpartition("/")[2], words[at + 1 :]
        before = words[:at]
        if program in _CONTAINERS and (arguments := _after_run(rest)) is not None:
            return container_starts(docker_run(arguments), _deeper(depth))
        if program in _SHELLS and (text := _script_of(rest)) is not None:
            return _within(text, environment | dict(_assignments(before)), depth)
        arguments = _server_arguments(program, rest)
        if arguments is not None:
            environment |= dict(_assignments(before))
            remarks = (*_wrappers(before), *_old_server(rest))
            return [Launch(arguments, environment, remarks=remarks)]
    return []


def container_starts(container: Container, depth: int = 0) -> list[Launch]:
    """The launches of vLLM in a container, with image, variables and mounts of the container."""
    words = [*container.entrypoint, *container.command]
    found = starts_of(words, {}, depth)
    if not found and not container.entrypoint and _is_server(container):
        # The entry point of the image is the server, so the command consists of vLLM's options.
        found = [Launch(tuple(container.command))]
    return [container.around(launch) for launch in found]


def _is_server(container: Container) -> bool:
    named = any(word.partition("=")[0] == "--model" for word in container.command)
    return named or (container.image is not None and starts_server(container.image))


def _within(text: str, environment: Mapping[str, str], depth: int) -> list[Launch]:
    return [
        Launch(launch.arguments, {**environment, **launch.environment}, remarks=launch.remarks)
        for launch in starts_in(text, _deeper(depth))
    ]


def _deeper(depth: int) -> int:
    if depth >= _DEPTH:
        raise ConversionError("Shells or containers are nested too deeply. Give the command line that starts vLLM.")
    return depth + 1


def _server_arguments(program: str, rest: Sequence[str]) -> tuple[str, ...] | None:
    """The arguments of vLLM's server, if the program starts it."""
    if program == "vllm" and rest[:1] == ["serve"]:
        return tuple(rest[1:])
    if program == "-m" and rest and _SERVER.fullmatch(rest[0]):
        arguments = tuple(rest[1:])
        return arguments[1:] if arguments[:1] == ("serve",) else arguments
    if program == "vllm" and rest[:1] == ["run-batch"]:
        raise ConversionError(
            "This is offline work. Write a PDInference for the model, and a PDBatch for the file of requests "
            "(docs/from-vllm.md, docs/batch.md)."
        )
    return None


def _after_run(rest: Sequence[str]) -> Sequence[str] | None:
    rest = rest[1:] if rest[:1] == ["container"] else rest
    return rest[1:] if rest[:1] == ["run"] else None


def _script_of(rest: Sequence[str]) -> str | None:
    """The script after `-c`, `-lc` or similar options."""
    for at, word in enumerate(rest[:-1]):
        if re.fullmatch(r"-[a-z]*c", word):
            return rest[at + 1]
        if not word.startswith(("-", "+")):
            return None
    return None


def _only_assigns(words: Sequence[str]) -> bool:
    rest = words[1:] if words[0] in {"export", "declare", "set"} else words
    return words[0] == "set" or all(word.startswith("-") or _ASSIGNMENT.fullmatch(word) for word in rest)


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        if match := _ASSIGNMENT.fullmatch(word):
            yield match[1], (Unresolved if isinstance(word, Unresolved) else str)(match[2])


def _old_server(rest: Sequence[str]) -> Iterator[Remark]:
    if rest[0] == "vllm.entrypoints.api_server":
        text = "This server has /generate only. The operator runs vLLM's OpenAI-compatible server: use /v1/completions."
        yield Remark(rest[0], text, left_out=False)


def _wrappers(words: Sequence[str]) -> Iterator[Remark]:
    """Remarks on programs in front of vLLM that resources do not support."""
    others = [
        word
        for word in words
        if not (_ASSIGNMENT.fullmatch(word) or word in _SILENT or re.fullmatch(r"(.*/)?python[0-9.]*", word))
    ]
    if others:
        yield Remark(" ".join(others), "The operator starts vLLM directly, without a wrapper.")
