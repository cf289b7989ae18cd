"""What the terminal shows: tables, progress, log lines."""
