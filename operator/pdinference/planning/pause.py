"""Messages about a paused resource.

Tests: tests/inference/test_paused.py, tests/cli/test_pause.py
"""


def resume_command(namespace: str, name: str) -> str:
    """The command that rolls out the edits of a paused resource, as Markdown."""
    return f"`kubectl pdi resume {name} -n {namespace}`"


def pause_message(namespace: str, name: str, *, withheld: bool) -> str:
    """What a pause holds back, and how to end it.

    Args:
        namespace: Of the resource.
        name: Of the resource.
        withheld: Whether the stored spec is not in effect.
    """
    what = "the stored spec is" if withheld else "edits of the spec are"
    return f"Paused: {what} not rolled out until {resume_command(namespace, name)}."
