"""Register a pushed version with other systems: KServe, Kubeflow's Model Registry, MLflow, TensorBoard."""
