"""Endpoints: each answers the requests of one kind of route."""
