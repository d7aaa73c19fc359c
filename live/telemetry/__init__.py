"""Telemetry of real GPUs: NVML readings with their source times, link counters, ring latency."""
