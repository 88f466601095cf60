"""The one exception that this package raises on purpose."""


class ClusterError(Exception):
    """Something a person can act on: the message says what went wrong and what to do about it."""
