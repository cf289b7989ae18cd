"""Convert a model to ONNX, calibrated on real data and compared with its parent before it is written."""
