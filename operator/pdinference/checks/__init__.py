"""Checks of a resource, shared by the webhook, the command line and the reconciler.

The schema and the rules between its fields are in `api`. The checks here also use the facts about the model, vLLM's
options, the memory plan and the installation policy.
"""

from pdinference.checks.examine import Examination, examine
from pdinference.checks.kinds import examine_any
from pdinference.checks.offline import BatchExamination, examine_batch

__all__ = ["BatchExamination", "Examination", "examine", "examine_any", "examine_batch"]
