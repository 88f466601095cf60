"""Finds launches of vLLM in commands: `vllm serve`, `python -m vllm...`, in a shell or in `docker run`.

Tests: tests/conversion/test_containers.py, tests/conversion/test_field_points.py, tests/conversion/test_resource.py
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pdinference.conversion.docker import Container, docker_run
from pdinference.conversion.expansion import Value
from pdinference.conversion.image import starts_server
from pdinference.conversion.launch import ConversionError, Launch, Remark, Unresolved
from pdinference.conversion.other_engines import engine_of_image, engine_of_words
from pdinference.conversion.script import Script, ScriptCommand

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SERVER = re.compile(r"vllm\.entrypoints\.(openai\.)?api_server|vllm\.entrypoints\.cli\.main|vllm\.scripts|vllm")
_SERVER_FILE = re.compile(r"(?:.*/)?vllm/entrypoints/(?:openai/)?api_server\.py")
DYNAMO = "dynamo.vllm"
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_SILENT = frozenset({"env", "exec", "nohup", "time", "sudo", "setsid", "command", "uv", "run"})
"""Prefixes of a command that are ignored, because they have no effect in a pod."""
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_PASS_ON = frozenset({"ssh", "tmux", "screen", "su", "script", "srun", "mpirun", "watch"})
"""Programs that pass an argument to a shell."""
_SAY = frozenset(
    {
        "echo",
        "printf",
        "grep",
        "pgrep",
        "pkill",
        "killall",
        "ps",
        "which",
        "cat",
        "pip",
        "pip3",
        "apt-get",
        "curl",
        "rm",
    }
)
"""Programs whose arguments are not commands."""
_DEPTH = 4
"""Maximum nesting of shells and containers."""
_CUT_OFF = (
    "The command ended on the line before: by a comment, by a blank line, or because the line does not end with a "
    "backslash. So a shell does not pass this to vLLM."
)
_ENTRY_POINT = (
    "The entry point of vLLM's image is `vllm serve` already, so vLLM would take this for the model. It is left out "
    "here, as the rest reads as meant without it."
)
_ONE_WORD = "A container would look for a program of this whole name. It is read as words of a command here."


@dataclass(frozen=True)
class Context:
    """What commands of a file refer to.

    Attributes:
        variables: Variables of the container or outer shell.
        files: Text of the scripts that are mounted into the container, by path.
        depth: Number of shells and containers around the command.
        others: Names of other inference servers that were found; filled here.
    """

    variables: Mapping[str, Value] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    depth: int = 0
    others: dict[str, None] = field(default_factory=dict)

    def within(self, variables: Mapping[str, Value] | None = None) -> "Context":
        """The context of a shell or container within this one."""
        if self.depth >= _DEPTH:
            raise ConversionError("Shells or containers are nested too deeply. Give the command line that starts vLLM.")
        merged = self.variables if variables is None else {**self.variables, **variables}
        return replace(self, variables=merged, depth=self.depth + 1)


def starts_in(text: str, context: Context | None = None, positional: Sequence[str] | None = None) -> list[Launch]:
    """All launches of vLLM in a shell script, in order.

    Raises:
        ConversionError: The script cannot be read.
    """
    context = context or Context()
    script = Script(context.variables, positional)
    found: list[Launch] = []
    just_started = False
    for command in script.commands(text):
        if just_started and command.words[0].startswith("-"):
            found[-1] = _with_remarks(found[-1], Remark(" ".join(command.words), _CUT_OFF))
            continue
        started = _starts_of_command(command, context)
        just_started = bool(started)
        found += started
    return [_with_remarks(launch, *script.remarks()) for launch in found]


def starts_of(
    words: Sequence[str], environment: Mapping[str, str] | None = None, context: Context | None = None
) -> list[Launch]:
    """The launches of vLLM in one command, including commands in a script that it passes to a shell."""
    context = context or Context()
    environment, words = dict(environment or {}), list(words)
    program = next((word for word in words if not (_ASSIGNMENT.fullmatch(word) or word in _SILENT)), "")
    if program.rpartition("/")[2] in _SAY:
        return []
    for at, word in enumerate(words):
        started = _starts_at(words, at, word.rpartition("/")[2], environment, context)
        if started is not None:
            return started
    if (other := engine_of_words(words)) is not None:
        context.others[other] = None
    return []


def container_starts(container: Container, context: Context | None = None) -> list[Launch]:
    """The launches of vLLM in a container, with image, variables and mounts of the container."""
    context = (context or Context()).within({**container.variables, **container.outside.environment})
    context = replace(context, files={**context.files, **container.files})
    words, remarks = _words_of(container)
    found = starts_of(words, {}, context)
    if not container.entrypoint and _is_server(container):
        # The entry point of the image is the server, so the command consists of vLLM's options.
        rest = _without_entry_point(words)
        if rest != words or not found:
            given = " ".join(words[: len(words) - len(rest)])
            remarks += [Remark(given, _ENTRY_POINT, left_out=False)] if given else []
            found = [Launch(tuple(rest))]
    elif not found and (other := engine_of_image(container.image)):
        context.others[other] = None
    return [container.around(_with_remarks(launch, *remarks)) for launch in found]


def _words_of(container: Container) -> tuple[list[str], list[Remark]]:
    """The command of a container. A program with blanks in its name is meant as a command line."""
    words = [*container.entrypoint, *container.command]
    first = words[0] if words else ""
    if not (container.entrypoint and re.search(r"\s", first.strip()) and "/" not in first.split()[0][:1]):
        return words, []
    split = [word for command in Script(container.variables).commands(first) for word in command.words]
    return [*split, *words[1:]], [Remark(first, _ONE_WORD, left_out=False)]


def _with_remarks(launch: Launch, *remarks: Remark) -> Launch:
    return replace(launch, remarks=(*launch.remarks, *remarks)) if remarks else launch


def _starts_of_command(command: ScriptCommand, context: Context) -> list[Launch]:
    found = starts_of(command.words, command.environment, context)
    for document in command.documents:
        try:
            found += starts_in(document.text, context.within(document.variables))
        except ConversionError:
            continue  # a text of another kind
    return found


def _starts_at(
    words: list[str], at: int, program: str, environment: dict[str, str], context: Context
) -> list[Launch] | None:
    """The launches of a program with its arguments; None if it is no program that can start vLLM."""
    rest, before = words[at + 1 :], words[:at]
    own = environment | dict(_assignments(before))
    if program in _CONTAINERS and (arguments := _after_run(rest)) is not None:
        return container_starts(docker_run(arguments), replace(context, variables={}))
    if (script := _script_at(words, at, program, context)) is not None:
        return _within(script.text, own, context, script.positional)
    arguments = _server_arguments(words[at], program, rest)
    if arguments is None:
        return None
    remarks = (*_wrappers(before), *_old_server(rest))
    return [Launch(arguments, own, remarks=remarks, program=DYNAMO if rest[:1] == [DYNAMO] else "vllm")]


def _names_vllm(word: str) -> bool:
    return re.search(r"\bvllm\b.*\s", word, re.DOTALL) is not None


def _is_server(container: Container) -> bool:
    if container.image is not None and engine_of_image(container.image) is not None:
        return False
    named = any(word.partition("=")[0] == "--model" for word in container.command)
    return named or (container.image is not None and starts_server(container.image))


def _without_entry_point(words: list[str]) -> list[str]:
    """The arguments of vLLM's image without a repeated `vllm serve`."""
    rest = words[1:] if words[:1] == ["vllm"] and words[1:2] == ["serve"] else words
    return rest[1:] if rest[:1] == ["serve"] else words


class _Passed(NamedTuple):
    """A script that a program runs, and its arguments."""

    text: str
    positional: Sequence[str] = ()


def _script_at(words: list[str], at: int, program: str, context: Context) -> _Passed | None:
    """The script that a program runs: a shell, `eval`, a program that passes one on, or a file that is known."""
    rest = words[at + 1 :]
    if program in _SHELLS:
        return _of_shell(rest, context)
    if words[at] in context.files:
        return _Passed(context.files[words[at]], rest)
    if program == "eval":
        return _Passed(" ".join(rest))
    passed = next((word for word in rest if _names_vllm(word)), None) if program in _PASS_ON else None
    return None if passed is None else _Passed(passed)


def _of_shell(rest: Sequence[str], context: Context) -> _Passed | None:
    """The script of a shell: after `-c`, or in a file that is known."""
    command, at = False, 0
    while at < len(rest) and rest[at][:1] in {"-", "+"} and rest[at] != "-":
        option = rest[at]
        short = not option.startswith("--")
        command |= short and "c" in option
        at += 2 if short and option[-1] in "oO" else 1
    if at >= len(rest):
        return None
    script = rest[at] if command else context.files.get(rest[at])
    return None if script is None else _Passed(script, rest[at + (2 if command else 1) :])


def _within(
    text: str, environment: Mapping[str, str], context: Context, positional: Sequence[str] = ()
) -> list[Launch]:
    return [
        replace(launch, environment={**environment, **launch.environment})
        for launch in starts_in(text, context.within(environment), positional)
    ]


def _server_arguments(word: str, program: str, rest: Sequence[str]) -> tuple[str, ...] | None:
    """The arguments of vLLM's server, if the program starts it."""
    if program == "vllm" and rest[:1] == ["serve"]:
        return tuple(rest[1:])
    if program == "-m" and rest and (_SERVER.fullmatch(rest[0]) or rest[0] == DYNAMO):
        arguments = tuple(rest[1:])
        if rest[0] in {"vllm", "vllm.scripts"} and arguments[:1] != ("serve",):
            return None
        return arguments[1:] if arguments[:1] == ("serve",) else arguments
    if _SERVER_FILE.fullmatch(word):
        return tuple(rest)
    if program == "vllm" and rest[:1] == ["run-batch"]:
        raise ConversionError(
            "This is offline work. Write a PDInference for the model, and a PDBatch for the file of requests "
            "(docs/from-vllm.md, docs/batch.md)."
        )
    return None


def _after_run(rest: Sequence[str]) -> Sequence[str] | None:
    rest = rest[1:] if rest[:1] == ["container"] else rest
    return rest[1:] if rest[:1] == ["run"] else None


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        if match := _ASSIGNMENT.fullmatch(word):
            yield match[1], (Unresolved if isinstance(word, Unresolved) else str)(match[2])


def _old_server(rest: Sequence[str]) -> Iterator[Remark]:
    if rest[:1] == ["vllm.entrypoints.api_server"]:
        text = "This server has /generate only. The operator runs vLLM's OpenAI-compatible server: use /v1/completions."
        yield Remark(rest[0], text, left_out=False)


def _wrappers(words: Sequence[str]) -> Iterator[Remark]:
    """Remarks on programs in front of vLLM that resources do not support."""
    others = [
        word
        for word in words
        if not (_ASSIGNMENT.fullmatch(word) or word in _SILENT or re.fullmatch(r"(.*/)?python[0-9.]*|-u", word))
    ]
    if others:
        yield Remark(" ".join(others), "The operator starts vLLM directly, without a wrapper.")
