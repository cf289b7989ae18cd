"""Conversion of data files to split TFRecords of tf.Example, on Beam."""
