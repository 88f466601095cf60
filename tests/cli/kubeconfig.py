"""A kubeconfig for tests of the command line."""

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: work
contexts:
- {name: work, context: {cluster: c, user: u, namespace: team-a}}
- {name: other, context: {cluster: c, user: u}}
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""
