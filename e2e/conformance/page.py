"""The evidence as a page to hand in, and as a table for the terminal (pure)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Column, Table
from rich.text import Text

from e2e.conformance.checklist import SOURCE
from e2e.conformance.evidence import Evidence, Verdict

_COLOURS: Final = {Verdict.MET: "green", Verdict.NOT_MET: "bold red"}
_SCOPE: Final = (
    "The programme certifies platforms. This page says what one operator, pdinference, shows of each requirement on "
    "this cluster, and what it does not show. The level is that of the requirement for a platform."
)
_SHOWN_CHARACTERS: Final = 600
"""Of what was seen, on the page. The files have all of it."""


def page(found: Sequence[Evidence], cluster: str, when: str) -> str:
    """The page, in Markdown.

    Args:
        found: The evidence, in the order of the checklist.
        cluster: What it is from: Kubernetes' version and the nodes.
        when: When the run began.
    """
    lines = [
        "# Evidence for the Kubernetes AI Conformance checklist",
        "",
        f"From `make conformance`, {when}. {cluster}",
        "",
        _SCOPE,
        "",
        f"**{summary(found)}**",
        "",
        "| requirement | level | verdict | what is missing |",
        "| --- | --- | --- | --- |",
        *(_row(evidence) for evidence in found),
    ]
    for evidence in found:
        lines += ["", *_section(evidence)]
    return "\n".join([*lines, ""])


def table(found: Sequence[Evidence]) -> Table:
    """The same in short."""
    ids = Column("requirement", min_width=max(len(evidence.requirement.id) for evidence in found))
    drawn = Table(ids, "level", "verdict", "shown", "what is missing", title_justify="left")
    for evidence in found:
        drawn.add_row(
            evidence.requirement.id,
            evidence.requirement.level,
            Text(evidence.verdict, style=_COLOURS.get(evidence.verdict, "")),
            _shown(evidence),
            Text(_one_line(evidence.why)),
        )
    return drawn


def summary(found: Sequence[Evidence]) -> str:
    """How many requirements have which verdict."""
    counts = Counter(evidence.verdict for evidence in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def _row(evidence: Evidence) -> str:
    one = evidence.requirement
    return f"| [{one.id}](#{one.id}) | {one.level} | {evidence.verdict} | {_cell(evidence.why)} |"


def _section(evidence: Evidence) -> Iterator[str]:
    one = evidence.requirement
    yield f"## {one.id}"
    yield ""
    checklist = f"[checklist v{one.version}]({SOURCE}/AIConformance-{one.version}.yaml)"
    yield f"{one.level}, `{one.category}` in the {checklist}: {one.asks}"
    yield ""
    yield f"Verdict: **{evidence.verdict}**{_reason(evidence)}"
    if evidence.observations:
        yield from ("", "| what was to be true | was it | what was seen |", "| --- | --- | --- |")
        for seen in evidence.observations:
            yield f"| {_cell(seen.what)} | {'yes' if seen.holds else 'no'} | {_cell(seen.seen)} |"
    if evidence.commands:
        yield from ("", "What was run:", "", *(f"    {_one_line(command)}" for command in evidence.commands))
    if evidence.files:
        yield from ("", f"Raw objects and metrics: {', '.join(f'[{name}]({name})' for name in evidence.files)}")
    if evidence.verdict is not Verdict.MET:
        yield from ("", f"On a cluster that has what is missing: {one.elsewhere}")


def _reason(evidence: Evidence) -> str:
    return f": {_cell(evidence.why)}" if evidence.why else ""


def _shown(evidence: Evidence) -> str:
    """How many observations are as they should be."""
    if not evidence.observations:
        return ""
    return f"{sum(seen.holds for seen in evidence.observations)} of {len(evidence.observations)}"


def _cell(text: str) -> str:
    """Text of the cluster as the cell of a table, in which it can be neither a cell, nor markup, nor a line."""
    line = _one_line(text)
    for character in "\\`*_[]<>|":
        line = line.replace(character, f"\\{character}")
    return line


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]} ..."
