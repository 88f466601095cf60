"""Whether a resource can work: the same answer, in the same words, for webhook, command line and reconcile.

The schema and the rules between its fields are in `api`; here is what needs more than the document: the model's facts,
vLLM's options, memory, and what the installation allows.
"""

from pdinference.checks.examine import Examination, examine
from pdinference.checks.kinds import examine_any
from pdinference.checks.offline import BatchExamination, examine_batch

__all__ = ["BatchExamination", "Examination", "examine", "examine_any", "examine_batch"]
