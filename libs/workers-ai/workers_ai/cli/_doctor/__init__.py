"""``workers-ai doctor``: check what a call needs, and say what to do about what is wrong."""
