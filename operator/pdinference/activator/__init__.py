"""The activator, a proxy in front of the router that queues requests while P and D have no pods."""
