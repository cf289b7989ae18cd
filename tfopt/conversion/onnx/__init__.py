"""ONNX models: conversion from SavedModels, casts to 16 bits, quantization, and one order of the nodes.

May import what `tfopt.conversion` may, and the modules above.
"""
