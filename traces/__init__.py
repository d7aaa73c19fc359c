"""Histories of LLM traffic: readers, the columnar Trace, generators, and what is done to them."""

from traces.change import mix, scale, slice
from traces.describe import describe
from traces.load import read
from traces.trace import Quirk, Trace

__all__ = ["Quirk", "Trace", "describe", "mix", "read", "scale", "slice"]
