"""Compares targets of KV usage and KV demand beside D's `decodeLoad`, and prints a Markdown table.

uv run --no-sync python -m benchmarks.autoscaling.kv_targets --seeds 41 42 --targets kvUsage=80 kvDemand=90
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from statistics import mean

from benchmarks.autoscaling import constants as const
from benchmarks.autoscaling.hpa import Hpa, Target
from benchmarks.autoscaling.policies import STATIC, Policy
from benchmarks.autoscaling.run import Outcome, simulate
from benchmarks.autoscaling.scaling import Scaler
from benchmarks.autoscaling.traces import MEMORY_TRACES, TRACES, Trace
from pdinference.api.names import Role
from pdinference.planning.scaling.presets import PRESETS
from pdinference.planning.scaling.signals import Signal

UNSEEN_SEEDS = (41, 42, 43, 44)
"""The target was chosen on seeds 1 to 3."""

_KV_SIGNALS = {"kvUsage": Signal.KV_USAGE, "kvDemand": Signal.KV_DEMAND}
_HEAD = "| trace | D's targets | kept both | GPU-hours | seconds in D before the first token | preemptions of 100 |"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=UNSEEN_SEEDS, help="Default: unseen ones.")
    parser.add_argument(
        "--targets", type=_target, nargs="*", default=[_target("kvUsage=80")], help="Beside decodeLoad 90, one each."
    )
    parser.add_argument("--alone", action="store_true", help="Also the targets without decodeLoad.")
    parser.add_argument("--static", action="store_true", help="Also as many pods as the peak needs.")
    traces = {trace.name: trace for trace in (*TRACES, *MEMORY_TRACES)}
    parser.add_argument("--traces", nargs="+", choices=traces, default=list(traces), help="Default: all.")
    options = parser.parse_args()
    given = options.targets
    load = {Signal.DECODE_LOAD: PRESETS[Role.DECODE].targets[Signal.DECODE_LOAD] / 1000}
    found = [load, *({**load, **target} for target in given), *(given if options.alone else ())]
    policies = [Policy(_name(targets), partial(scaler, targets)) for targets in found]
    print(_HEAD)
    print("| --- " * 2 + "| ---: " * 4 + "|")
    for name, policy in product(options.traces, [*policies, *([STATIC] if options.static else [])]):
        print(_row(traces[name], policy, options.seeds), flush=True)


def _target(text: str) -> Mapping[Signal, float]:
    name, _, percent = text.partition("=")
    if name not in _KV_SIGNALS:
        raise argparse.ArgumentTypeError(f"{text}: use one of {', '.join(_KV_SIGNALS)}, as in kvUsage=80")
    return {_KV_SIGNALS[name]: int(percent) / 100}


def _name(targets: Mapping[Signal, float]) -> str:
    words = {Signal.DECODE_LOAD: "decodeLoad", **{signal: name for name, signal in _KV_SIGNALS.items()}}
    return ", ".join(f"{words[signal]} {100 * average:.0f}" for signal, average in targets.items())


def scaler(decode: Mapping[Signal, float], role: Role) -> Scaler:
    """The preset of a role, but for the targets of D."""
    preset = PRESETS[role]
    targets = decode if role is Role.DECODE else {signal: milli / 1000 for signal, milli in preset.targets.items()}
    aims = tuple(Target(signal, average) for signal, average in targets.items())
    return Hpa(const.MIN_PODS, const.MAX_PODS, aims, preset.behavior)


def _row(trace: Trace, policy: Policy, seeds: Sequence[int]) -> str:
    outcomes: list[Outcome] = [simulate(trace, seed, policy) for seed in seeds]
    met, hours = mean(one.met for one in outcomes), mean(one.gpu_hours for one in outcomes)
    wait, preempted = mean(one.decode_wait for one in outcomes), mean(one.preemptions for one in outcomes)
    return f"| {trace.name} | {policy.name} | {met:.1%} | {hours:.2f} | {wait:.2f} | {preempted:.1f} |"


if __name__ == "__main__":
    main()
