"""Limits on workloads, which come from command lines and files of strangers.

Tests: tests/advise/advice/workload/test_synthetic.py, tests/advise/advice/workload/test_lengths.py
"""

from typing import Final

MOST_TOKENS: Final = 10_000_000
"""Tokens of a prompt or an answer, the longest context of a released model."""
MOST_REQUESTS: Final = 1_000_000
"""Requests of a workload, which take about 320 MiB."""
MOST_RATE: Final = 100_000.0
"""Requests per second."""
LONGEST_S: Final = 366 * 86_400.0
"""Length of a workload in seconds."""


class WorkloadError(ValueError):
    """A workload cannot be used. The message says what is wrong, where, and what to do."""
