"""A Kubernetes operator that serves large language models with vLLM, prefill and decode apart.

The layers, lowest first. Each imports only the layers before it (checked by import-linter):

- `api`: the `PDInference` resource, its CRD, and every name, label and port, once.
- `planning`, `engine`: pure functions from a spec to roles and revisions, and to vLLM's command lines.
- `manifests`: pure rendering of the child objects.
- `cluster`: the API client, the cache of live objects, apply and prune.
- `controller`: watches, work queue, reconcile, status, leader election, health.
- `cli`: `pdinference run | render | plan | crd`.
"""
