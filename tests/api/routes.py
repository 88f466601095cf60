"""Routes that are right or wrong, for the models and for the API server."""

from typing import Any, Final

Json = dict[str, Any]

PUBLIC: Final[Json] = {"namespace": "infra", "name": "public"}
"""A Gateway."""


def routed(**route: Any) -> Json:
    """A spec with this route; to a Gateway if it names none."""
    return {"router": {"route": {"parentRefs": [PUBLIC], **route}}}


def _timeouts(**timeouts: str) -> Json:
    return {"timeouts": timeouts}


EVERY_FIELD: Final[Json] = {
    "parentRefs": [
        {"group": "gateway.networking.k8s.io", "kind": "Gateway", **PUBLIC, "sectionName": "https", "port": 443},
        {**PUBLIC, "sectionName": "http", "port": 80},
        {"name": "public"},
    ],
    "hostnames": ["llm.example.com", "*.models.example.com"],
    "modelHeader": "X-Gateway-Model-Name",
    "timeouts": {"request": "1h30m", "backendRequest": "600s"},
}
RIGHT_ROUTES: Final[tuple[Json, ...]] = (
    {},
    EVERY_FIELD,
    {"parentRefs": [{"name": f"g{number}"} for number in range(8)]},
    {"parentRefs": [{"name": "mesh", "group": "", "kind": "Service"}]},
    {"hostnames": [f"h{number}.example.com" for number in range(16)]},
    {"hostnames": []},
    {"modelHeader": "x"},
    {"modelHeader": "x" * 63},
    {"timeouts": {}},
    _timeouts(request="0s"),
    _timeouts(request="0s", backendRequest="2h"),
    _timeouts(request="10s", backendRequest="0s"),
    _timeouts(request="1m", backendRequest="60000ms"),
    _timeouts(backendRequest="99999h99999h99999h99999h"),
)
WRONG_ROUTES: Final[tuple[tuple[Json, str], ...]] = (
    ({"parentRefs": []}, ".parentRefs"),
    ({"parentRefs": [{"name": f"g{number}"} for number in range(9)]}, ".parentRefs"),
    ({"parentRefs": [{"namespace": "infra"}]}, ".parentRefs[0].name"),
    ({"parentRefs": [{"name": "Public"}]}, ".parentRefs[0].name"),
    ({"parentRefs": [{"name": "public", "namespace": "a.b"}]}, ".parentRefs[0].namespace"),
    ({"parentRefs": [{"name": "public", "sectionName": "a b"}]}, ".parentRefs[0].sectionName"),
    ({"parentRefs": [{"name": "public", "port": 65536}]}, ".parentRefs[0].port"),
    ({"parentRefs": [{"name": "public", "kind": "Gate way"}]}, ".parentRefs[0].kind"),
    ({"parentRefs": [{"name": "public", "group": "A"}]}, ".parentRefs[0].group"),
    ({"parentRefs": [PUBLIC, PUBLIC]}, ".parentRefs"),
    ({"parentRefs": [PUBLIC, {**PUBLIC, "sectionName": "https"}]}, ".parentRefs"),
    ({"parentRefs": [{**PUBLIC, "sectionName": "https"}] * 2}, ".parentRefs"),
    ({"parentRefs": [{"name": "a"}, PUBLIC, {"name": "a", "port": 80}]}, ".parentRefs"),
    ({"hostnames": ["LLM.example.com"]}, ".hostnames[0]"),
    ({"hostnames": ["llm.*.example.com"]}, ".hostnames[0]"),
    ({"hostnames": ["*"]}, ".hostnames[0]"),
    ({"hostnames": [""]}, ".hostnames[0]"),
    ({"hostnames": [f"h{number}.example.com" for number in range(17)]}, ".hostnames"),
    ({"modelHeader": ""}, ".modelHeader"),
    ({"modelHeader": "X-Model: a"}, ".modelHeader"),
    ({"modelHeader": "-x"}, ".modelHeader"),
    ({"modelHeader": "x" * 64}, ".modelHeader"),
    (_timeouts(request="600"), ".timeouts.request"),
    (_timeouts(request="1.5h"), ".timeouts.request"),
    (_timeouts(request="100000s"), ".timeouts.request"),
    (_timeouts(request="10s", backendRequest="11s"), ".timeouts.backendRequest"),
    (_timeouts(request="1m", backendRequest="60001ms"), ".timeouts.backendRequest"),
)
