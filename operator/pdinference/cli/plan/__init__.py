"""`pdinference plan`: the memory plan of a resource, as text or JSON."""
