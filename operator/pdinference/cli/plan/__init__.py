"""`pdinference plan`: the memory plan of a resource, for people and as JSON."""
