"""Test, on your own traffic, whether an LLM routing layer can be deleted and what that buys."""

__version__ = "0.1.0"
