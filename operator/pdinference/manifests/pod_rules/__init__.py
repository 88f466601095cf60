"""What an overlay (`podTemplate`) may hold: tables of allowed members, a file for each subject.

A PDInference may be created by people who may not create any pod they like, and the operator would create it for them.
So an overlay must not reach out of the pod, nor take from the operator what keeps P and D working: what no table names
is refused.
"""

from pdinference.manifests.pod_rules.pod import overlay_problems
from pdinference.manifests.pod_rules.shapes import Allowance, not_allowed

__all__ = ["Allowance", "not_allowed", "overlay_problems"]
