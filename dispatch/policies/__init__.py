"""The placement policies that zerolayer ships; ``dispatch.registry`` knows them by name."""
