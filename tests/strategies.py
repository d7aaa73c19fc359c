"""Hypothesis strategies of the whole house, a heading a room."""
