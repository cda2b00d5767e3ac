"""``workers-ai doctor``: check everything that a call needs, and print a remedy for each problem."""
