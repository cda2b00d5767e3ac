"""What ingestion needs besides the core: documents with their keys, and vectors that were computed before."""
