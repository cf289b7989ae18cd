"""Quantize the layers of a SavedModel to 8 bits, for TensorFlow's oneDNN kernels on x86 CPUs."""
