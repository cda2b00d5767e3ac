"""The chat model of an emulator without an upstream. It answers by rules instead of a neural network."""
