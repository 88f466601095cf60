"""The documentation site builds without a warning, and needs nothing from other hosts."""

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from e2e import images, site
from tests.conftest import REPOSITORY
from tests.http_server import served

LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. A link, an anchor or a page of the navigation that does not exist fails here."""
    folder = tmp_path_factory.mktemp("site") / "html"
    site.build(folder)
    return folder


class Loaded(HTMLParser):
    """What a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in LOADING:
            self.addresses += [value or "" for name, value in attrs if name == LOADING[tag]]


def loaded(page: Path) -> list[str]:
    parser = Loaded()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.addresses


def test_pages_load_nothing_from_other_hosts(pages: Path) -> None:
    found = {page.name: [address for address in loaded(page) if "//" in address] for page in pages.rglob("*.html")}
    assert len(found) > 40
    assert {name: addresses for name, addresses in found.items() if addresses} == {}
    styles = "".join(sheet.read_text(encoding="utf-8") for sheet in pages.rglob("*.css"))
    assert re.findall(r"@import\b.*//|url\(['\"]?(?:https?:)?//", styles) == []


def test_a_broken_link_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Title\n\n[gone](gone.md), [away](#away)\n", encoding="utf-8")
    monkeypatch.setattr(images, "REPOSITORY", tmp_path)
    with pytest.raises(site.SiteError, match="Correct what is listed above"):
        site.build(tmp_path / "html")


@pytest.mark.parametrize("content", [None, b"another file"])
async def test_without_mermaid_the_drawings_stay_source(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "mermaid.tgz").write_bytes(content)
    async with served([web.static("/", tmp_path)]) as port:
        address = f"http://127.0.0.1:{port}/mermaid.tgz"
        monkeypatch.setattr(site, "_MERMAID_URL", address)
        monkeypatch.setattr(site, "_CACHE", tmp_path / "cache" / "mermaid.min.js")
        (tmp_path / "_static").mkdir()
        await asyncio.to_thread(site.add_mermaid, tmp_path)
    warning = capsys.readouterr().err
    assert address in warning
    assert "The pages have the source of the drawings instead." in warning
    assert list((tmp_path / "_static").iterdir()) == []


def test_the_list_for_programs_names_pages_of_the_site(pages: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (pages / "llms.txt").read_text(encoding="utf-8"))
    assert len(links) > 40
    assert [link for link in links if not (pages / link).is_file()] == []


def test_tables_of_fields_and_the_search_are_those_of_the_site(pages: Path) -> None:
    """The class is for the layout on a phone; the scores put decisions and measurements after pages for users."""
    reference = (pages / "docs" / "reference" / "pdinference.html").read_text(encoding="utf-8")
    assert len(re.findall(r'<table class="[^"]*\bfields\b', reference)) == reference.count("<table")
    assert 'class="fields' not in (pages / "docs" / "index.html").read_text(encoding="utf-8")
    scorer = (REPOSITORY / "docs" / "site" / "search.js").read_text(encoding="utf-8")
    assert scorer.strip() in (pages / "_static" / "language_data.js").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation(pages: Path) -> None:
    """Sphinx fails for a page that is in no list; this finds pages that it does not read at all."""
    names = (page.relative_to(REPOSITORY).with_suffix(".html") for page in (REPOSITORY / "docs").rglob("*.md"))
    assert [str(name) for name in names if not (pages / name).exists()] == []


async def test_versions_lie_beside_each_other_and_the_latest_opens(tmp_path: Path) -> None:
    (tmp_path / "site" / "docs").mkdir(parents=True)
    (tmp_path / "versions" / ".git").mkdir(parents=True)
    for name in ("0.9.0", "0.10.1", "0.2.0", "0.9.0"):
        (tmp_path / "site" / "docs" / "index.html").write_text(name, encoding="utf-8")
        site.add_version(tmp_path / "site", tmp_path / "versions", name)
    routes = [web.static("/", tmp_path / "versions")]
    async with served(routes) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        names = (await client.get("/versions.json")).json()
        assert names == ["0.10.1", "0.9.0", "0.2.0"]
        assert [(await client.get(f"/{name}/docs/index.html")).text for name in names] == names
        assert "url=0.10.1/docs/index.html" in (await client.get("/index.html")).text
