"""Accessible SVG charts for the HTML reports.

May import `tfopt.formatting`, `tfopt.errors` and `tfopt.error_messages`.
"""
