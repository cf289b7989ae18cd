"""Comparison of light backbones: cost before training, quality after a short one."""
