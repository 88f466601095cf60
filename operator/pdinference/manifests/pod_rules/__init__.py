"""Rules for overlays (`podTemplate`): tables of allowed members, one file per subject.

Users who may create a PDInference may lack the permission to create arbitrary pods. So an overlay must not grant
access beyond the pod, nor remove what P and D need. Members that no table lists are rejected.
"""

from pdinference.manifests.pod_rules.pod import overlay_problems
from pdinference.manifests.pod_rules.shapes import BUCKET_SECRET, TOKEN_SECRET, Allowance, not_allowed

__all__ = ["BUCKET_SECRET", "TOKEN_SECRET", "Allowance", "not_allowed", "overlay_problems"]
