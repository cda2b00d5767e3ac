"""Documents with their keys, and vectors of a ledger, for ingestion."""
