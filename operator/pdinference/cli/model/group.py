"""`pdinference model`: commands of pods beside vLLM, which can also be run manually.

Tests: tests/models/test_fetch.py, tests/models/test_folder.py
"""

import logging
import sys
from typing import Final

import click

from pdinference.cli.extras import HUBS
from pdinference.cli.lazy_group import LazyGroup, later

OWN: Final = {
    "check": later("model.check:check", "Check that a folder has a complete download of `fetch`."),
    "fetch": later("model.fetch:fetch", "Download a model to a folder, unless it is there, and verify it.", extra=HUBS),
    "inspect": later("model.inspect:inspect", "Print facts about a model for the memory plan, as JSON."),
    "look": later("model.look:look", "Check whether vLLM can load the model in a folder, by headers and sizes only."),
}


@click.group("model", cls=LazyGroup, own=OWN)
def model_group() -> None:
    """Download, check and inspect models."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
