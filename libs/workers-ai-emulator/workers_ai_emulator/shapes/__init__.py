"""Wire forms of answers and errors. No state, no HTTP."""
