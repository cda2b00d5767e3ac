"""Transports into the emulator: in the process, over a socket, and as an ASGI application."""
