"""The data of a training: records of a split as batches for `fit`, checked against the model."""
