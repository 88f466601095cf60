"""The argument NAME, where it is left out."""

from typing import Any

import click
import pytest

from pdinference.cli.chosen import chosen


class FirstPage:
    """An API server with more resources than it was asked for."""

    async def get(self, path: str, *, limit: str) -> dict[str, Any]:
        items = [{"metadata": {"name": f"r{number}"}} for number in range(int(limit))]
        return {"metadata": {"continue": "more"}, "items": items}


async def test_the_resources_of_a_first_page_are_not_called_all() -> None:
    with pytest.raises(
        click.ClickException, match=r"has more than 20 PDInferences \(r0, .*, r19, \.\.\.\)\. Write the"
    ):
        await chosen(FirstPage(), "team-a", None)  # type: ignore[arg-type]
