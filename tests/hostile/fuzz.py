"""Mutates documents and examines each within limits: `python -m tests.hostile.fuzz SEED COUNT`.

Prints the number of each case before it, so that one that ends the process is known, and what is wrong with it.
"""

import faulthandler
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pdinference.api.v1alpha1.source import ModelSource
from tests.hostile import seeds
from tests.hostile.limits import cpu_limit, memory_limit
from tests.hostile.looks import problems_of, read_config
from tests.hostile.mutations import mutated

Case = tuple[str, Callable[[], object]]


def cases(seed: int, count: int) -> Iterator[Case]:
    """Random cases: a resource, sometimes with a changed status, or a config.json alone."""
    documents, configs = seeds.documents(), seeds.model_configs()
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")  # noqa: S311 - the same for each seed
        match chance.randrange(10):
            case 0 | 1:
                config = mutated(chance.choice(configs), chance)
                yield "config", partial(read_config, config)
            case 2:
                document = seeds.planned(mutated(chance.choice(configs), chance))
                yield "planned", partial(problems_of, document)
            case 3:
                document, model = _known(chance, configs)
                yield "status", partial(problems_of, document, model=model)
            case _:
                document = mutated(chance.choice(documents), chance)
                yield "document", partial(problems_of, document)


def _known(chance: random.Random, configs: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    adapter = {"path": "a/b", "rank": 16, "modules": ["q_proj"], "base": "a/c", "unsupported": []}
    source = {"huggingFace": {"repository": "a/model"}}
    document = seeds.resource({"model": {"source": source, "lora": {"adapters": [{"name": "sql", "path": "a/b"}]}}})
    facts = {
        "source": ModelSource.model_validate(source).identity(),
        "config": chance.choice(configs),
        "checkpoint": {"elements": 10**9, "otherBytes": 5},
        "adapters": [adapter],
    }
    return document, mutated({"facts": facts}, chance)


def main(seed: int, count: int) -> int:
    """Look at each case; the number of those that went wrong."""
    faulthandler.enable()
    for document in seeds.documents():  # everything is imported, and caches are filled
        problems_of(document)
    wrong, slowest = 0, (0.0, -1)
    for number, (kind, look) in enumerate(cases(seed, count)):
        _say(f"Case {number}")
        started = time.process_time()
        try:
            with memory_limit(), cpu_limit():
                look()
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            wrong += 1
            _say(f"Wrong: case {number} of seed {seed} ({kind}):\n{traceback.format_exc(limit=-6)[-3000:]}")
        slowest = max(slowest, (time.process_time() - started, number))
    _say(f"{count} cases, {wrong} wrong; the slowest took {slowest[0]:.2f} s of CPU time (case {slowest[1]}).")
    return wrong


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(min(1, main(int(sys.argv[1]), int(sys.argv[2]))))
