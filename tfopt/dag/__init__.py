"""A pipeline function read into a DAG of steps, checked before anything runs.

May import `tfopt.component` and what is below it; no engine.
"""
