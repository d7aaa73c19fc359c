"""`zerolayer gate`: exact simulation, work counters, and paired wall clock of two commits."""
