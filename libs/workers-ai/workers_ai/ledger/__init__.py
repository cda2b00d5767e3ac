"""The SQLite ledger of bulk work."""
