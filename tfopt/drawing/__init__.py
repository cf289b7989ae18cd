"""Pictures of measurements as SVG for pages, readable without a mouse, by eye or by ear."""
