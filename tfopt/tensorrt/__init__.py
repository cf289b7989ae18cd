"""TensorRT engines: the machine they need, the tag that says which, their shapes, and memory on the GPU."""
