"""How many of which GPU hold the SLOs: a search over fleets, every step of it a simulated run."""
