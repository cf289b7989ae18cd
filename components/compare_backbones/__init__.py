"""Tune: which optimizing steps, in which order and with which parameters, serve a model best within a budget."""
