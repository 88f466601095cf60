"""Times of requests, for people.

Tests: tests/cli/test_chat.py
"""


def time_text(seconds: float) -> str:
    """Seconds or milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
