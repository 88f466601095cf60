"""What a check does and sees, written down while it happens."""

import shlex
from pathlib import Path
from typing import Any

import yaml

from e2e.conformance.checklist import Requirement
from e2e.conformance.evidence import Evidence, Gap, Observation, Verdict
from e2e.console import say
from e2e.kubectl import Kubectl


class Notes:
    """The notes of one check: commands, observations and raw files.

    Attributes:
        kubectl: The cluster, for what is not worth a note.
    """

    def __init__(self, requirement: Requirement, kubectl: Kubectl, folder: Path) -> None:
        """Start empty; files go to a folder in `folder`, named as the requirement."""
        self.kubectl = kubectl
        self._requirement = requirement
        self._folder = folder
        self._commands: list[str] = []
        self._observations: list[Observation] = []
        self._files: list[str] = []
        self._gap: Gap | None = None

    def evidence(self) -> Evidence:
        """What was noted so far."""
        return Evidence(
            self._requirement, tuple(self._observations), self._gap, tuple(self._commands), tuple(self._files)
        )

    def saw(self, what: str, holds: bool, seen: str) -> None:
        """Note an observation."""
        say(f"{'yes' if holds else 'NO '}  {what}: {seen}")
        self._observations.append(Observation(what, holds, seen))

    def lacks(self, verdict: Verdict, why: str) -> None:
        """Note what keeps the requirement from being met."""
        say(f"{verdict}: {why}")
        self._gap = Gap(verdict, why)

    def did(self, command: str) -> None:
        """Note what was run, or sent."""
        if command not in self._commands:
            self._commands.append(command)

    def run(self, *words: str) -> str:
        """Run kubectl.

        Raises:
            KubectlError: It failed.
        """
        self.did(shlex.join(("kubectl", "-n", self.kubectl.namespace, *words)))
        return self.kubectl.run(*words)

    def get(self, *words: str, keep: str) -> Any:
        """Get objects, and keep them as a file of this name; what only the API server's bookkeeping needs is left out.

        Raises:
            KubectlError: It failed.
        """
        self.did(shlex.join(("kubectl", "-n", self.kubectl.namespace, "get", *words, "-o", "yaml")))
        found = self.kubectl.get(*words)
        for one in found.get("items", [found]):
            one["metadata"].pop("managedFields", None)
        self.keep(f"{keep}.yaml", yaml.safe_dump(found, sort_keys=False, width=120))
        return found

    def apply(self, document: dict[str, Any], *, keep: str) -> None:
        """Apply a document, and keep it as a file of this name.

        Raises:
            KubectlError: It was refused.
        """
        text = yaml.safe_dump(document, sort_keys=False, width=120)
        name = self.keep(f"{keep}.yaml", text)
        self.did(f"kubectl -n {self.kubectl.namespace} apply -f {name}")
        self.kubectl.run("apply", "-f", "-", stdin=text)

    def keep(self, name: str, text: str) -> str:
        """Write a raw file; its path relative to the page comes back."""
        path = self._folder / self._requirement.id / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        relative = str(path.relative_to(self._folder))
        if relative not in self._files:
            self._files.append(relative)
        return relative
