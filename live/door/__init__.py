"""The HTTP door: OpenAI's completions API in front of a backend."""
