"""The patch between two statuses."""

from typing import Any

import pytest

from pdinference.controller.status_writer import merge_patch


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1, "b": {"c": [1]}}, {"a": 1, "b": {"c": [1]}}, {}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": {"b": 1}, "d": 1}, {"d": 2}, {"a": None, "d": 2}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({}, {"a": {}}, {"a": {}}),
    ],
)
def test_a_patch_names_what_is_new_and_what_is_to_go(
    old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert merge_patch(old, new) == patch
