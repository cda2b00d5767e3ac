"""langchain_workers_ai."""
