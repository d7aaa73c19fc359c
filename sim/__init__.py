"""The SimPy model of a fleet around the dispatcher core."""

from sim.config import Setup
from sim.facts import RunFacts
from sim.run import replay

__all__ = ["RunFacts", "Setup", "replay"]
