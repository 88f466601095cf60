"""Questions that have no answer."""


class AdviceError(ValueError):
    """There is no advice. The message says what is missing or wrong, and what to do."""
