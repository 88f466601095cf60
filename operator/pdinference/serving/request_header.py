"""The API server's published configuration for request-header authentication by extension API servers.

Tests: tests/serving/test_callers.py
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pdinference.cluster.client import ApiServer

PATH: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """How the API server authenticates as a front proxy, and the headers with the user.

    Attributes:
        authorities: CAs of its client certificate, as PEM.
        names: Common names that the certificate may have; empty for any.
    """

    authorities: str
    names: frozenset[str]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    @classmethod
    async def read(cls, api: ApiServer) -> Self:
        """Read the published configuration.

        Raises:
            ApiError: It could not be read.
            ValueError: It is invalid.
        """
        return cls._from_data((await api.get(PATH)).get("data") or {})

    @classmethod
    def _from_data(cls, data: Mapping[str, str]) -> Self:
        def values(key: str) -> tuple[str, ...]:
            return tuple(json.loads(data.get(f"requestheader-{key}") or "[]"))

        if not (authorities := data.get("requestheader-client-ca-file", "")):
            raise ValueError("the API server has no --requestheader-client-ca-file, so it proxies no requests")
        return cls(
            authorities=authorities,
            names=frozenset(values("allowed-names")),
            user_headers=values("username-headers"),
            group_headers=values("group-headers"),
            extra_prefixes=tuple(prefix.lower() for prefix in values("extra-headers-prefix")),
        )
