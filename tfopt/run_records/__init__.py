"""The record of each run in its folder, and the removal of what newer runs replace."""
