"""The shared dispatcher core: no clock, no I/O beyond its own data files, no SimPy, no torch."""
