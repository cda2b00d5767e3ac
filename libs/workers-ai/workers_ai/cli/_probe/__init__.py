"""``workers-ai probe``: test undocumented behaviour of the service on a real account."""
