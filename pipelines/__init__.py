"""The pipelines: one file is one DAG, the same on Beam and on Kubeflow."""
