"""The check on a GPU: ceilings, costs of launches and barriers, correctness, times and bytes."""
