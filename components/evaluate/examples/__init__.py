"""The evaluated records: reading, decoding, and checks of them."""
