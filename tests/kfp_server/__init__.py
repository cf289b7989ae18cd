"""A small Kubeflow Pipelines API server over HTTP, which checks every request and response against KFP's own schema.

``swagger.json`` is ``backend/api/v2beta1/swagger/kfp_api_single_file.swagger.json`` of github.com/kubeflow/pipelines at
commit 7a20c635d3c778591e254fda0a81e05a5b0b5505, unchanged; Copyright The Kubeflow Authors, Apache License 2.0 (the text
is this repository's LICENSE).
"""
