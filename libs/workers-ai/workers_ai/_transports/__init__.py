"""Ways to send a request: HTTP, the binding of a Worker, a deployed batch Worker."""
