"""The chat model of an emulator without an upstream: rules instead of a network."""
