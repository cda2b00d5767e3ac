"""The ledger as an SQLite file: tables, fingerprint, and which runs are alive."""
