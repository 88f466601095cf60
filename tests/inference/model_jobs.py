"""A model that a Job downloads, and the Job's reports."""

import json
from typing import Any

from pdinference.api import names
from pdinference.cluster.kinds import JOB
from tests.inference.world import World

Json = dict[str, Any]


def model(repository: str = "owner/name") -> Json:
    cache = {"persistentVolumeClaim": {"claimName": "models"}}
    return {"source": {"huggingFace": {"repository": repository}}, "cache": cache}


def jobs(world: World) -> list[str]:
    return world.api.names("/jobs/")


def report(world: World, *, complete: bool = False, **content: Any) -> None:
    """What the Job's pod and the Job's controller write."""
    (name,) = jobs(world)
    path = JOB.path("ns", name)
    body = world.api.objects[path]
    body["metadata"]["annotations"][names.ANNOTATION_MODEL] = json.dumps(content)
    body["status"] = {"conditions": [{"type": "Complete", "status": "True"}]} if complete else {"active": 1}
    world.api.put(path, body)
    world.sync()
