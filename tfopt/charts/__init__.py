"""Accessible SVG charts for the HTML reports.

May import `tfopt.formatting` and what is below it.
"""
