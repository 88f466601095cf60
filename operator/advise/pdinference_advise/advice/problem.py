"""Questions that have no answer.

Tests: tests/advise/advice/test_options.py, tests/advise/commands/advise/test_advise.py
"""


class AdviceError(ValueError):
    """There is no advice. The message says what is missing or wrong, and what to do."""
