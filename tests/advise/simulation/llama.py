"""Llama-3.1-8B's shape on an H200, for tests of the simulation."""

from benchmarks.advise.measured import Load
from benchmarks.advise.predicted import arrangement_of

_LOAD = Load("NVLink", 1000, 250, 10, 0, 0, (0, 0), (0, 0), 0, 0)
SPLIT = arrangement_of(_LOAD)
TOGETHER = arrangement_of(Load("co-located", 1000, 250, 10, 0, 0, (0, 0), (0, 0), 0, 0))
STEPS = SPLIT.kind.steps
