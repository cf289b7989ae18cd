"""A pipeline function read into a DAG of steps, checked before anything runs."""
