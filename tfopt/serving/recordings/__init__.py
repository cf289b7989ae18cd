"""Recorded requests: request logs of TensorFlow Serving, KServe's events, tf.Example records and JSON lines."""
