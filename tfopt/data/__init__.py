"""Examples as batches and TFRecords, feature schemas, sample inputs, and the arguments of Beam runners.

May import `tfopt.artifacts` and what is below it.
"""
