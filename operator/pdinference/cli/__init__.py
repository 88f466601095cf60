"""The `pdinference` command, and the same as a plug-in of kubectl."""

from pdinference.cli.commands import main
from pdinference.cli.kubectl import kubectl_complete_pdi, kubectl_pdi

__all__ = ["kubectl_complete_pdi", "kubectl_pdi", "main"]
