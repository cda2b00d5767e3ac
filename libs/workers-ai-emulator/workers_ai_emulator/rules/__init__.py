"""What the models compute and what they refuse: pure functions of the request and the catalogue."""
