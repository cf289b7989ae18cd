"""Convert a model to a TensorRT engine, from an ONNX file that is compared with its parent on this machine."""
