"""The graph neural network: job-machine graphs in, a score per mode and a value out."""
