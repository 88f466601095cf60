"""The status of a PDInference, from what was wanted, what is there, and what went wrong.

A `StatusInputs` holds all that is known. `problems` says what keeps a role from being as wanted; one file for each
condition judges the inputs; `build` puts the results and all else together.
"""

from pdinference.planning.status.build import build_status, service_url
from pdinference.planning.status.deadline import due
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.left_alone import left_alone_status

__all__ = ["StatusInputs", "build_status", "due", "left_alone_status", "service_url"]
