"""Workloads for `pdinference advise`: synthetic ones, traces in files, and the load of a running resource. Pure."""
