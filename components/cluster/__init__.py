"""Weight sharing: each kernel gets by with a few distinct values, kept exact through fine-tuning."""
