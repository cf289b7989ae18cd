"""Files that TensorFlow Serving and Triton load: layouts, configuration, warm-up requests, metadata."""
