"""Predicts how engines serve a load, and measures what the prediction needs: commands of `pdinference`."""
