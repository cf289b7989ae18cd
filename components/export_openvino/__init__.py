"""Convert a model to OpenVINO, calibrated on real data and compared with its parent before it is written."""
