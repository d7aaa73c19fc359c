"""Scenarios: the schema, the files that come with it, and everything that runs them."""
