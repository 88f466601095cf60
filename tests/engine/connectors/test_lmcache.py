"""LMCache: its server, and settings for the same keys in P and D."""

from pdinference.api.names import Role
from pdinference.engine.vllm import engine_command
from tests.engine.commands import environment
from tests.engine.connectors.transfers import Make, through


def test_lmcache_finds_its_server_and_the_same_hashes_on_both_sides(resource: Make) -> None:
    for role in (Role.PARAMETER, Role.DECODE):
        found = environment(engine_command(through(resource, "LMCache"), role))
        assert found["LMCACHE_REMOTE_URL"] == "lm://lmcache.cache.svc:65432"
        assert found["PYTHONHASHSEED"] == "0"
