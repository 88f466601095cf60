"""What stands in front of the router when P and D may have no pods: requests wait here until there are some."""
