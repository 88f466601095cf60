"""llms.txt: the pages of the site with a sentence about each, for programs that read documentation (llmstxt.org)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_DOCS: Final = _REPOSITORY / "docs"
_GROUP: Final = re.compile(r"^```\{toctree\}\n(?::\w+:\n)*:caption: (.+)\n\n((?:.+\n)+)```$", re.MULTILINE)
_COMMENT: Final = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE: Final = re.compile(r".*?[.?](?=\s|$)", re.DOTALL)
_PROSE: Final = re.compile(r"[\w`*\"\[]")


def llms_text() -> str:
    """The whole file."""
    front = (_DOCS / "index.md").read_text(encoding="utf-8")
    parts = [f"# pdinference\n\n> {_summary(front)}"]
    for caption, entries in _GROUP.findall(front):
        pages = (page for entry in entries.split() for page in sorted(_DOCS.glob(f"{entry}.md")))
        parts.append("\n".join([f"## {caption}\n", *(_line(page.resolve()) for page in pages)]))
    return "\n\n".join(parts) + "\n"


def _line(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    title = _plain(text.partition("\n")[0].removeprefix("# "))
    summary = _summary(text) if page.parent.name != "adr" else ""
    return f"- [{title}](_sources/{page.relative_to(_REPOSITORY)}){summary and f': {summary}'}"


def _summary(text: str) -> str:
    """The first sentence of the first paragraph."""
    paragraph = next(_paragraphs(text), "")
    found = _SENTENCE.match(paragraph)
    return _plain(found[0] if found else paragraph).removesuffix(":")


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of prose, without headings, code, tables and lists."""
    for block in _COMMENT.sub("", text).split("\n\n"):
        if _PROSE.match(block) and not block.startswith("```"):
            yield " ".join(block.split())


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("**", "")
