"""Run one component: check inputs, stage outputs, write model cards, digest the code for the cache."""
