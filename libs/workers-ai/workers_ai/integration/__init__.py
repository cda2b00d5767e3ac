"""The names that framework packages build on."""
