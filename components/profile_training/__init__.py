"""Say what a training waits for, and measure what would help."""
