"""Files that TensorFlow Serving and Triton load: layouts, configuration, warm-up requests, metadata.

May import `tfopt.graph`, `tfopt.runtimes` and what is below them.
"""
