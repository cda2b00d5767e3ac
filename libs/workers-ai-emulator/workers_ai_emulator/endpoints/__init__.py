"""HTTP bodies in, HTTP bodies out; the state and the rules are elsewhere."""
