"""State of the service: limits, capacity, queue, faults, log. No HTTP."""
