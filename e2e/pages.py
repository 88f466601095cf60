"""Runs pages of the documentation as a reader would, with bash, and compares what their commands print.

An indented block has commands. They run in order, in one shell, and each has to succeed. In a block with `$ ` prompts,
the lines below a command are what it prints. A fence without a language, or with `json`, is what the commands before it
print.

| on the page | stands for |
| --- | --- |
| `...` in a line, or as a line | any text, or any number of lines |
| a number | any number, but zero only for zero |
| a number with `ms` or `s` | any number but zero, with either unit |
| the random part of a name, as in `tiny-decode-85795cffdb-fwszl` | any such part |
| some spaces | any number of spaces |
| a member of a JSON object | the member; others may be there, too |
| the comment `# ... until Ctrl-C` of a command | Ctrl-C, when the command has printed something |
| the comment `# ... is refused` of a command | a command that has to fail |
| `<!-- not run: REASON -->` before a block | commands that need something that the local cluster lacks |
| `<!-- not compared: REASON -->` before a fence | what something else has printed |

Readers do not see the comments of the last two rows.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from markdown_it import MarkdownIt

from e2e.install import REPOSITORY
from e2e.programs import PROGRAMS

DOCUMENTS: Final = REPOSITORY / "docs"
PAGES: Final = (
    "quick-start",
    "kubectl-pdi",
    "measure",
    "verify",
    "admission",
    "troubleshooting",
    "operations",
    "undo",
    "models",
    "autoscaling",
    "batch",
    "gitops",
    "gitops-fleet",
    "p-d-or-not",
)
"""The pages that work on the local cluster of the demo, and are run there."""
_MARK: Final = re.compile(r"<!-- (not run|not compared): (.+?) -->", re.DOTALL)
_PROMPT: Final = "$ "
_LINES: Final = "..."
_INTERRUPTED: Final = re.compile(r"^(.+?)\s+#.*\buntil Ctrl-C\b.*$", re.MULTILINE)
_REFUSED: Final = re.compile(r"^(.+?)\s+#.*\bis refused\b.*$", re.MULTILINE)
_BETWEEN: Final = "\x1e"
"""Printed before each step."""
_RANDOM: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters and digits of Kubernetes' random names, and of our revisions."""
_ENDED: Final = re.compile(r"^bash: line \d+: +\d+ (?:Terminated|Killed) .*\n", re.MULTILINE)
"""What bash says of a process in the background; with a terminal it says something else."""
_ZERO: Final = r"0(?:\.0+)?"
_NUMBER: Final = r"\d+(?:[.,:]\d+)*(?:e[+-]\d+)?"
"""Also a time of day."""
_PARTS: Final = {
    "any": r"\.\.\.",
    "space": r"[ \t]+",
    "random": rf"\b(?=\d*[a-z])[{_RANDOM}]{{5,}}\b",
    "duration": rf"{_NUMBER} m?s\b",
    "number": rf"(?<![A-Za-z_]){_NUMBER}",
}
_VARIABLE: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PARTS.items()))
_NOT_ZERO: Final = rf"(?=[0.,:]*[1-9]){_NUMBER}"
_STANDS_FOR: Final = {
    "any": ".*",
    "space": r"[ \t]+",
    "random": f"[{_RANDOM}]+",
    "duration": rf"{_NOT_ZERO} m?s\b",
    "number": _NOT_ZERO,
}
_BASH: Final = """\
set -Ee -o pipefail
shopt -s inherit_errexit
trap 'echo "Exit status $?: $BASH_COMMAND"' ERR
exec < /dev/null
until_ctrl_c() {
    local printed status=0
    printed=$(mktemp)
    set -m  # else a background process ignores SIGINT
    "$@" > "$printed" 2>&1 &
    set +m
    until [ -s "$printed" ] || ! kill -0 $! 2> /dev/null; do sleep 0.1; done
    kill -INT -- -$! 2> /dev/null || true
    wait $! || status=$?
    cat "$printed"
    [ $status = 0 ] || [ $status = 1 ] || [ $status = 130 ]
}
is_refused() {
    ! "$@" || { echo "This was not refused."; return 1; }
}
"""


class PageError(AssertionError):
    """A page is not right; the text has the place and what was printed."""


@dataclass(frozen=True)
class Step:
    """Commands of a page.

    Attributes:
        line: Where they begin on the page.
        shown: What the page says that they print; None if it does not.
        is_json: Whether that is JSON.
    """

    line: int
    commands: str
    shown: str | None = None
    is_json: bool = False

    def problem(self, printed: str) -> str:
        """What is wrong with what was printed; empty if the page shows it, or shows nothing."""
        if self.shown is None:
            return ""
        shown, printed = self.shown, printed.replace("\r", "")
        if self.is_json:
            try:
                shown, printed = _same_members(shown, printed)
            except ValueError as error:
                return f"no JSON was printed ({error})"
        return "" if is_as_shown(shown, printed) else f"other output than this one:\n{shown}"


@dataclass(frozen=True)
class Skipped:
    """A block that is marked."""

    mark: str
    reason: str
    first_line: str


@dataclass(frozen=True)
class Page:
    """What a page has for a reader to run."""

    path: Path
    steps: tuple[Step, ...]
    skipped: tuple[Skipped, ...]

    def run(self, folder: Path, environment: Mapping[str, str], timeout: float) -> None:
        """Run all steps in one shell, and compare what they print. Processes in the background end with it.

        Args:
            folder: The working directory, which gets the repository's examples.
            environment: Beside PATH, which has the programs of a reader alone.
            timeout: Seconds for all of them.

        Raises:
            PageError: A step failed or took too long, or printed something else.
        """
        shutil.copytree(REPOSITORY / "examples", folder / "examples")
        printed, ended = _printed(_script(self.steps), folder, environment, timeout)
        outputs = printed.split(_BETWEEN)[1:]
        for number, (step, output) in enumerate(zip(self.steps, outputs, strict=False), 1):
            found = ended if ended and number == len(outputs) else step.problem(output)
            if found:
                raise PageError(f"{self.path.name}, line {step.line}, {found}\n\n{step.commands}\nPrinted:\n{output}")
        if ended or len(outputs) != len(self.steps):
            raise PageError(f"{self.path.name}: {ended or 'a step ended the shell'}\n{printed}")


def page(path: Path) -> Page:
    """Read a page."""
    steps: list[Step] = []
    skipped: list[Skipped] = []
    mark: re.Match[str] | None = None
    ran = False
    for token in MarkdownIt("commonmark").parse(path.read_text(encoding="utf-8")):
        if token.type == "html_block":
            mark = _MARK.search(token.content)
            continue
        commands = token.type == "code_block"
        if not commands and not (token.type == "fence" and token.info in ("", "json")):
            continue
        if mark:
            skipped.append(Skipped(mark[1], mark[2], token.content.splitlines()[0]))
        elif commands:
            steps += _steps(token.content, (token.map or [0])[0] + 1)
        elif ran and steps[-1].shown is None:
            steps[-1] = replace(steps[-1], shown=token.content, is_json=token.info == "json")
        else:
            raise PageError(f"{path}: no commands are before the output {token.content.splitlines()[0]!r}.")
        ran, mark = (commands and mark is None) or (ran and not commands), None
    return Page(path, tuple(steps), tuple(skipped))


def _steps(block: str, line: int) -> Iterator[Step]:
    """A block of commands; or, with prompts, each command with what it prints."""
    if not block.startswith(_PROMPT):
        yield Step(line, block)
        return
    for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = session.partition("\n")
        yield Step(line, f"{command}\n", shown.rstrip("\n"))
        line += session.count("\n")


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether something printed is what a page shows, apart from what may differ."""
    lines = [r"(?:.*\n)*?" if line.strip() == _LINES else f"{_pattern(line.strip())}\n" for line in _lines(shown)]
    return re.fullmatch("".join(lines), "".join(f"{line.strip()}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    return text.strip("\n").split("\n") if text.strip() else []


def _pattern(line: str) -> str:
    parts, end = [], 0
    for found in _VARIABLE.finditer(line):
        parts += [re.escape(line[end : found.start()]), _part(found)]
        end = found.end()
    return "".join([*parts, re.escape(line[end:])])


def _part(found: re.Match[str]) -> str:
    zero = found.lastgroup == "number" and re.fullmatch(_ZERO, found[0])
    return _ZERO if zero else _STANDS_FOR[found.lastgroup or ""]


def _same_members(shown: str, printed: str) -> tuple[str, str]:
    """Both as JSON, the second one with the members of the first one alone."""
    wanted, found = json.loads(shown), json.loads(printed)
    return json.dumps(wanted, indent=1), json.dumps(_reduced(found, wanted), indent=1)


def _reduced(found: Any, like: Any) -> Any:
    if isinstance(found, dict) and isinstance(like, dict):
        return {name: _reduced(found[name], value) for name, value in like.items() if name in found}
    if isinstance(found, list) and isinstance(like, list) and len(found) == len(like):
        return [_reduced(*pair) for pair in zip(found, like, strict=True)]
    return found


def _script(steps: tuple[Step, ...]) -> str:
    return _BASH + "".join(f"printf '\\x1e'\n{_runnable(step.commands)}" for step in steps)


def _runnable(commands: str) -> str:
    """Commands with what their comments say."""
    return _REFUSED.sub(r"is_refused \1", _INTERRUPTED.sub(r"until_ctrl_c \1", commands))


def _printed(script: str, folder: Path, environment: Mapping[str, str], timeout: float) -> tuple[str, str]:
    """What a script prints, and why it ended early; empty if it did not."""
    programs = folder / ".programs"
    programs.mkdir()
    for name in PROGRAMS:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    path = os.pathsep.join([*filter(None, [environment.get("PATH")]), str(programs)])
    # A file, because processes in the background would keep a pipe open.
    with (folder / ".printed").open("w+b") as printed:
        # A process that was started in the background ignores SIGINT, and so would all of its children.
        process = subprocess.Popen(
            ["env", "--default-signal=INT", "bash", "-c", script], cwd=folder, env={**environment, "PATH": path},
            stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout)
            problem = f"exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            problem = f"not done after {timeout:.0f} s"
        finally:
            with suppress(ProcessLookupError):  # none is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        return _ENDED.sub("", printed.read().decode(errors="replace")), problem
