"""The HTTP edge: forwards OpenAI-compatible requests and asks the core before it does."""
