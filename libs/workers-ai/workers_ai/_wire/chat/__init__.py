"""Chat requests and replies as plain data."""
