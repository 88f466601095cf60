"""`pdinference advise`: whether to split, how, on what, and what to expect."""
