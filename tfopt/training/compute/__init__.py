"""The computation of a training step: devices, memory, precision, fused and repeated operations."""
