"""Input checks and computed results: pure functions of the request and the catalogue."""
