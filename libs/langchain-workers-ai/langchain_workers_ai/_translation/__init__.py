"""Translation between LangChain and the core: messages, tools, schemas, answers, chunks."""
