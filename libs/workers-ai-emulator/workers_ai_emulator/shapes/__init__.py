"""How answers and refusals are spelled on the wire. No state, no HTTP."""
