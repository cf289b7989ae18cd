"""TensorRT on this machine: compatibility tag, shape profiles, device memory, messages.

May import `tfopt.artifacts` and what is below it.
"""
