"""`pdinference top`: memory and load of each engine of P and D."""
