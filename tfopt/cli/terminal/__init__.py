"""Show output on the terminal: tables, progress, log lines."""
