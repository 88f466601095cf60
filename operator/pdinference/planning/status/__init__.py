"""The status of a PDInference, from desired state, observed state, and failures.

`StatusInputs` contains all inputs. `problems` finds what keeps a role from its desired state. Each condition has a file
that computes its result. `build` combines them.
"""

from pdinference.planning.status.build import build_status
from pdinference.planning.status.deadline import due
from pdinference.planning.status.inputs import StatusInputs
from pdinference.planning.status.left_alone import left_alone_status
from pdinference.planning.status.objectives import due_limit

__all__ = ["StatusInputs", "build_status", "due", "due_limit", "left_alone_status"]
