"""Engine that runs a DAG in this process, without TFX and ML Metadata: `tfopt.process_engine.runner`."""
