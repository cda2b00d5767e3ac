"""The chat model that the emulator plays when it has no upstream: documented rules instead of a network."""
