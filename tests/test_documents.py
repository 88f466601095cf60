"""Documents refer only to existing links, anchors, files and tests."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pdinference.planning.scaling.signals import Signal
from tests.conftest import REPOSITORY

_PACKAGES = (REPOSITORY / "operator" / "pdinference", REPOSITORY / "operator" / "advise" / "pdinference_advise")
_NOT_OURS = {".venv", ".uv", ".git", "node_modules", "build", "dist", "site"}
_PAGES = sorted(page for page in REPOSITORY.rglob("*.md") if not _NOT_OURS & set(page.relative_to(REPOSITORY).parts))
_FOR_DEVELOPERS = [
    REPOSITORY / "ARCHITECTURE.md",
    *sorted((REPOSITORY / "docs" / "adr").glob("*.md")),
    REPOSITORY / "docs" / "contributing.md",
    REPOSITORY / "docs" / "debug-reconcile.md",
    REPOSITORY / "docs" / "failure-modes.md",
    REPOSITORY / "docs" / "failure-modes-operator.md",
]
_MOST_WORDS = 1_800
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SEQUENCE = re.compile(r"^```mermaid\nsequenceDiagram\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_NAMED_LINK = re.compile(r"\[`?([\w-]+\.md)`?\]\(([^)#\s]+)")
_HOST = re.compile(r"([a-z0-9-]+\.)+[a-z]{2,}")
_UNSAFE = re.compile(r"[^\w\-.~:/?#@!$&'*+,;=%]|[.,;:]$")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")
_NAMED_PAGE = re.compile(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?")
_CODE_FOLDERS = ("operator", "charts", "e2e", "tests", "benchmarks", "examples", "images")
_TEST = re.compile(r"test_\w+")
_SUFFIXES = {".py", ".md", ".yaml", ".toml", ".json", ".lua", ".j2", ".txt"}


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


def broken(page: Path) -> Iterator[str]:
    """Relative links of a page whose file or anchor does not exist."""
    for link in _LINK.findall(prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


@cache
def all_tests() -> frozenset[str]:
    files = chain((REPOSITORY / "tests").rglob("*.py"), (REPOSITORY / "e2e").glob("*.py"))
    return frozenset(chain.from_iterable(re.findall(r"def (test_\w+)", file.read_text("utf-8")) for file in files))


def missing(page: Path) -> Iterator[str]:
    """Files and tests that a page names in code spans, and that do not exist."""
    return (span for span in _CODE.findall(prose(page)) if not exists(span))


def exists(span: str) -> bool:
    """Whether what a code span names exists; True for a span that names no file and no test."""
    if _TEST.fullmatch(span):
        return span in all_tests()
    if _PATH.fullmatch(span) and (Path(span).suffix in _SUFFIXES or span.endswith("/")):
        return any((folder / span).exists() for folder in (REPOSITORY, *_PACKAGES))
    return True


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_has_no_markers_of_a_merge(page: Path) -> None:
    assert not re.search(r"^(<<<<<<<|=======|>>>>>>>)( |$)", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_is_short_enough_to_read(page: Path) -> None:
    """Measurements and their history belong into benchmarks/results."""
    words = len(page.read_text(encoding="utf-8").split())
    assert words <= _MOST_WORDS, f"docs/{page.name} has {words:,} words, and a page may have {_MOST_WORDS:,}"


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_and_anchors_of_a_page_exist(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_names_a_page_leads_to_it() -> None:
    links = [(page.name, *link) for page in _PAGES for link in _NAMED_LINK.findall(prose(page))]
    assert links
    assert [link for link in links if Path(link[2]).name != link[1]] == []


def malformed(page: Path) -> Iterator[str]:
    """Links of a page to other sites that no browser should follow, or none can."""
    for link in _LINK.findall(prose(page)):
        if "://" in link or link.startswith("//"):
            parts = urlsplit(link)
            host = parts.hostname or ""
            if parts.scheme != "https" or not _HOST.fullmatch(host) or parts.netloc != host or _UNSAFE.search(link):
                yield link


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_of_a_page_to_other_sites_are_https_and_well_formed(page: Path) -> None:
    """Whether they exist is not known here: tests need no network."""
    assert list(malformed(page)) == []


@pytest.mark.parametrize(
    "link",
    [
        "http://docs.vllm.ai",
        "https//docs.vllm.ai",
        "//docs.vllm.ai",
        "https://docs",
        "https://me:token@github.com/a",
        "https://docs.vllm.ai/a,",
        "https://docs.vllm.ai/<page>",
    ],
)
def test_a_link_that_is_not_well_formed_is_found(tmp_path: Path, link: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"[ok](https://docs.vllm.ai/en/latest/?a=b#c_d) and [not]({link})")
    assert {*malformed(page), *broken(page)} == {link}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_line_of_a_sequence_diagram_has_a_semicolon(page: Path) -> None:
    """Mermaid ends the line there, and shows an error instead of the drawing."""
    assert [text for text in _SEQUENCE.findall(page.read_text(encoding="utf-8")) if ";" in text] == []


def named_pages(file: Path) -> Iterator[str]:
    """Pages below docs/ that a file of code names and that do not exist."""
    for name, anchor in _NAMED_PAGE.findall(file.read_text(encoding="utf-8")):
        page = REPOSITORY / name
        if not page.exists() or (anchor and anchor not in anchors(page)):
            yield f"{name}#{anchor}"


def test_pages_that_code_names_exist() -> None:
    code = (file for folder in _CODE_FOLDERS for file in (REPOSITORY / folder).rglob("*") if file.suffix in _SUFFIXES)
    found = {str(file.relative_to(REPOSITORY)): list(named_pages(file)) for file in code}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize("page", _FOR_DEVELOPERS, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    assert list(missing(page)) == []


def test_every_signal_is_on_its_page() -> None:
    page = (REPOSITORY / "docs" / "autoscaling.md").read_text(encoding="utf-8")
    assert [signal for signal in Signal if f"`{signal.removeprefix('pdinference_')}`" not in page] == []


def test_every_record_is_in_the_index() -> None:
    records = REPOSITORY / "docs" / "adr"
    listed = re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (records / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(page.name for page in records.glob("[0-9]*.md"))
