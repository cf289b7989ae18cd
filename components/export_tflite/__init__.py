"""Convert a model to LiteRT (TFLite), calibrated on real data and compared with its parent before it is written."""
