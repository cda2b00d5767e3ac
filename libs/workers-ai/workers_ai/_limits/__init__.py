"""The limiter that all objects of one account share."""
