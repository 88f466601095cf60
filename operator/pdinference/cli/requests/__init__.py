"""`pdinference chat` and `bench`: requests to a router through a port-forward, and how long they take."""
