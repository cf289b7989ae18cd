"""Events of a run, sent to receivers that the environment names: traces and metrics by OTLP, lineage by OpenLineage."""
