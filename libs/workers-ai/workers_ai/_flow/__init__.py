"""Flows: the steps of a call, and the drivers that run them."""
