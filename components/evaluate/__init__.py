"""How well each model predicts, against the baseline, on the same records."""
