"""Runs of bulk work: the engine, its workers, and the ledger they share."""
