"""Training on examples: the user's module, datasets, the training loop. Shared by `train` and fine-tuning components.

May import `tfopt.measurement`, `tfopt.runtimes`, `tfopt.keras_models`, `tfopt.data` and what is below them.
"""
