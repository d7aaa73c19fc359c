"""Run the kernels without a GPU: Triton's interpreter made honest, and programs interleaved."""
