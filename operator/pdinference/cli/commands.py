"""The `pdinference` command."""

from typing import Final

import click

from pdinference.cli.extras import OPERATOR
from pdinference.cli.lazy_group import later
from pdinference.cli.plugins import commands_of_others
from pdinference.cli.program import Program

OWN: Final = {
    "adapter-rules": later(
        "adapter_rules:adapter_rules_command",
        "Print the rule with which prometheus-adapter serves the scaling signals (spec.autoscaling.source).",
    ),
    "batch": later("batch:batch_command", "Run batches of requests from a file."),
    "bench": later("requests.bench:bench_command", "Send a short load to a PDInference, and print its latencies."),
    "chat": later("requests.chat:chat_command", "Ask a model, and see how long each stage took."),
    "check": later("check:check_command", "Check that an installed operator answers: its webhook and its metrics API."),
    "completion": later(
        "completion:completion_command", "Print a script that completes the command `pdinference` in a shell."
    ),
    "convert": later(
        "convert:convert_command",
        "Print the PDInference for a vLLM command line, with a comment for each setting that is left out.",
    ),
    "crd": later("crd:crd_command", "Print all CustomResourceDefinitions, or those with the given names."),
    "dashboard": later(
        "dashboard.command:dashboard_command",
        "Print the Grafana dashboard: scale, load, memory by role, latency, KV transfer, objectives and GPUs.",
    ),
    "diff": later(
        "history.commands:diff_command", "Print the changes of the last edit, or between two revisions, as a YAML diff."
    ),
    "doctor": later(
        "doctor.command:doctor_command", "Check whether the cluster has what the KV transfer of a PDInference needs."
    ),
    "explain": later(
        "explain.command:explain_command", "Print the next actions of the operator for a PDInference, with reasons."
    ),
    "history": later(
        "history.commands:history_command",
        "List the valid specs of a resource with their changes; * marks the stored spec.",
    ),
    "logs": later("logs.command:logs_command", "Print the logs of all pods of a role, each line with its pod."),
    "model": later("model.group:model_group", "Download, check and inspect models."),
    "pause": later("pause:pause_command", "Store edits of a resource without a roll-out, until it is resumed."),
    "plan": later("plan.command:plan_command", "Predict the memory usage of each role, and how many requests fit."),
    "render": later("render:render_command", "Print the objects that the operator would apply, without a cluster."),
    "restart": later(
        "restart:restart_command", "Replace the pods of a role one by one, as `kubectl rollout restart` does."
    ),
    "resume": later("pause:resume_command", "Roll out the stored spec of a paused resource."),
    "router": later("router:router_command", "The router in front of P and D.", extra=OPERATOR),
    "run": later("operator:run_command", "Run the operator.", extra=OPERATOR),
    "status": later(
        "status.command:status_command",
        "Show a PDInference with its pods, loads, transfer and objectives, and what is not as it should be.",
    ),
    "top": later(
        "top.command:top_command",
        "Show memory and load of each engine of P and D, and its KV cache over time, until Ctrl-C.",
    ),
    "undo": later(
        "history.commands:undo_command", "Restore the last other spec that served, with your own credentials."
    ),
    "validate": later(
        "validate:validate_command", "Check resources like the webhook, without a cluster, and print all problems."
    ),
}
"""The commands of this package, each with the first sentence of its help."""

SECTIONS: Final = {
    "Before you have a cluster": ("convert", "advise", "validate", "plan", "render"),
    "Look at a resource": ("status", "top", "logs", "explain", "doctor"),
    "Send requests": ("chat", "bench"),
    "Change a resource": ("history", "diff", "undo", "pause", "resume", "restart"),
    "Install": ("check", "crd", "dashboard", "adapter-rules", "calibrate", "completion"),
    "Run by the operator's pods": ("run", "router", "batch", "model"),
}
"""The order of the help: as a person meets the commands."""


@click.group(
    cls=Program,
    own=OWN,
    others=commands_of_others,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="pdinference")
def main() -> None:
    """Serve large language models with vLLM on Kubernetes, with disaggregated prefill and decode."""
