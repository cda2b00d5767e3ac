"""Ways into the emulator: in the process, through a socket, as an ASGI application."""
