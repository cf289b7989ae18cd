"""Convert a model to a TensorRT engine, by way of an ONNX file that was compared with its parent on this machine."""
