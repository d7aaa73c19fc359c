"""The replay client: a trace's arrivals, open loop, against any OpenAI-compatible server."""
