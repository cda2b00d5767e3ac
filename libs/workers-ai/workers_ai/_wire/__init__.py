"""The wire: plain data in and out of the service. No I/O, no clock, no framework."""
