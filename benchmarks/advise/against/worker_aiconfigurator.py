"""Asks AIConfigurator for estimates: reads a list of questions in JSON, and writes a list of answers.

The Python of AIConfigurator's own environment runs it. A question has `rate`, requests a second of one engine, or
`concurrency`; and `arguments` of `cli_estimate`, which is what `aiconfigurator cli estimate` calls. With `rate` the
answer is the estimate of the smallest batch in which so many requests come and go: by Little's law it has rate x time
of them. The batch of a split is D's.
"""

import functools
import json
import logging
import sys
from typing import Any

from aiconfigurator.cli import api  # type: ignore[import-not-found,unused-ignore]
from aiconfigurator_core.sdk import perf_database  # type: ignore[import-not-found,unused-ignore]

logging.disable(logging.CRITICAL)
perf_database.get_supported_databases = functools.cache(perf_database.get_supported_databases)  # it reads 500 files
_MOST = 1024


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    arguments = question["arguments"]
    split = arguments.get("mode") == "disagg"

    def at(batch: int) -> dict[str, Any]:
        found = api.cli_estimate(**arguments, **{"decode_batch_size" if split else "batch_size": batch})
        times = {"ttft": float(found.ttft), "tpot": float(found.tpot), "whole": float(found.request_latency)}
        return times | {"batch": batch, "bears": float(found.seq_per_second)}

    def is_enough(found: dict[str, Any]) -> bool:
        seconds = (found["tpot"] * (arguments["osl"] - 1) if split else found["whole"]) / 1000
        return bool(found["batch"] >= question["rate"] * seconds)

    if "concurrency" in question:
        return at(question["concurrency"])
    most = 1
    while not is_enough(at(most)):
        most *= 2
        if most > _MOST:
            return {"problem": f"more requests come than end, with each batch of up to {_MOST}"}
    least = most // 2 + 1
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if is_enough(at(middle)) else (middle + 1, most)
    return at(most)


answers = []
for asked in json.load(sys.stdin):
    try:
        answers.append(_answer(asked))
    except Exception as problem:  # noqa: BLE001 - what it cannot estimate is part of the result
        answers.append({"problem": f"{type(problem).__name__}: {problem}"[:300]})
    sys.stderr.write(f"{len(answers)} {answers[-1]}\n")
json.dump(answers, sys.stdout)
