"""Decide: goals, objective, Pareto front, one model, and a page that shows why."""
