"""The statistics and the wording of `zerolayer gate`; scenarios.gate runs the measurements."""
