"""The schema for the metadata of components in the repository kubeflow/pipelines-components.

``metadata_schema.json`` is ``scripts/validate_metadata/metadata_schema.json`` of that GitHub repository (a branch) at
commit aff56c09592e456404b8d68cd692188086f1034c, unchanged; Copyright The Kubeflow Authors, Apache License 2.0.
"""
