"""GPU and model catalogue, and the one cost model that sim, live and kernels read."""
