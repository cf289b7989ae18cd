"""Child processes: one-off calls, a fork server, and request/response workers.

May import `tfopt.errors` only.
"""
