"""Events of OpenLineage about runs, steps and the data between them, sent by its client as its settings say.

A run is a job with the name of the pipeline, and a step one with the name PIPELINE.STEP. A dataset is named by its
path in the namespace ``file``, or by the path in a bucket in the namespace of that, such as ``s3://models``.
"""

import datetime
import os
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from openlineage.client.client import OpenLineageClient
from openlineage.client.constants import DEFAULT_NAMESPACE_NAME
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    dataset_type_dataset,
    dataset_version_dataset,
    documentation_job,
    error_message_run,
    execution_parameters_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    tags_run,
)

import tfopt
from tfopt.artifacts import Artifact, Model, Pushed
from tfopt.dag import run_events
from tfopt.dag.run_events import RunEnded, RunStarted, StepEnded, StepStarted
from tfopt.storage.remote_files import is_remote
from tfopt.telemetry.delivery import LIMIT_S
from tfopt.telemetry.process_usage import ProcessUsage

PRODUCER = "urn:tfopt"
INTEGRATION = "TFOPT"
PARENT = "OPENLINEAGE_PARENT_ID"  # NAMESPACE/JOB/RUN of what started this process, as other integrations read it

Place = tuple[str, str]  # namespace and name of a dataset


def exporter() -> "OpenLineageExporter":
    """Return the exporter of events."""
    set_producer(PRODUCER)
    return OpenLineageExporter(OpenLineageClient())


class OpenLineageExporter:
    """Events of OpenLineage, in their order."""

    def __init__(self, client: OpenLineageClient) -> None:
        """Send events with a client."""
        self._client = client
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE", DEFAULT_NAMESPACE_NAME)
        self._pending: deque[RunEvent] = deque()
        self._run: RunStarted | None = None
        self._steps: dict[str, tuple[StepStarted, str]] = {}  # with the ID of its run
        self._read: dict[Place, InputDataset] = {}  # by all steps
        self._written: dict[Place, OutputDataset] = {}
        self._digests: dict[str, str | None] = {}  # of outputs

    def add(self, event: run_events.RunEvent, _: ProcessUsage) -> None:
        """Convert an event."""
        if isinstance(event, RunStarted):
            self._run = event
            self._put(RunState.START, event, event.id, self._job("DAG", event.pipeline), _caller())
        elif isinstance(event, StepStarted):
            identifier = str(uuid.uuid5(uuid.UUID(self._run.id), event.step) if self._run else uuid.uuid4())
            self._steps[event.step] = event, identifier
            inputs = self._inputs(event, {})
            self._put(RunState.START, event, identifier, self._job_of(event), self._facets(event), inputs)
        elif isinstance(event, StepEnded):
            self._end_step(event)
        elif isinstance(event, RunEnded) and self._run:
            for step in list(self._steps):
                self._end_step(StepEnded(step, error=event.error, time_ns=event.time_ns))
            read = [dataset for place, dataset in self._read.items() if place not in self._written]
            written = [dataset for place, dataset in self._written.items() if place not in self._read]
            facets = _caller() | _failure(event.error)
            job = self._job("DAG", self._run.pipeline)
            self._put(_state(event.error), event, self._run.id, job, facets, read, written)

    def _end_step(self, event: StepEnded) -> None:
        started, identifier = self._steps.pop(event.step)
        outcome = event.outcome
        inputs = self._inputs(started, outcome.inputs if outcome else {})
        outputs = list(_outputs(outcome.outputs, outcome.digests)) if outcome else []
        if outcome:
            self._digests |= {output.uri: outcome.digests.get(name) for name, output in outcome.outputs.items()}
        self._read |= {(dataset.namespace, dataset.name): dataset for dataset in inputs}
        self._written |= {(dataset.namespace, dataset.name): dataset for dataset in outputs}
        facets = self._facets(started) | _failure(event.error)
        if outcome and outcome.reused:
            tag = tags_run.TagsRunFacetFields(key="reused", value="true", source=INTEGRATION)
            facets["tags"] = tags_run.TagsRunFacet(tags=[tag])
        self._put(_state(event.error), event, identifier, self._job_of(started), facets, inputs, outputs)

    def flush(self, *, is_last: bool) -> None:
        """Send the events; those after one that does not arrive wait, as their order counts."""
        while self._pending:
            self._client.emit(self._pending[0])
            self._pending.popleft()
        if is_last and not self._client.close(LIMIT_S):  # of transports that send later
            raise TimeoutError(f"the transport has events left after {LIMIT_S:g} s")

    def _put(
        self,
        state: RunState,
        event: run_events.RunEvent,
        identifier: str,
        job: Job,
        facets: Mapping[str, RunFacet],
        inputs: list[InputDataset] | None = None,
        outputs: list[OutputDataset] | None = None,
    ) -> None:
        time = datetime.datetime.fromtimestamp(event.time_ns / 1e9, datetime.UTC).isoformat()
        engine = processing_engine_run.ProcessingEngineRunFacet(version=tfopt.__version__, name="tfopt")
        run = Run(identifier, {**facets, "processing_engine": engine})
        self._pending.append(
            RunEvent(
                eventType=state, eventTime=time, run=run, job=job, inputs=inputs, outputs=outputs, producer=PRODUCER
            )
        )

    def _inputs(self, step: StepStarted, digests: Mapping[str, list[str | None]]) -> list[InputDataset]:
        datasets = {}
        for name, artifacts in step.inputs.items():
            listed = digests.get(name, [])
            own = listed if len(listed) == len(artifacts) else [None] * len(artifacts)
            for artifact, digest in zip(artifacts, own, strict=True):
                datasets[_place(artifact.uri)] = _facets_of(artifact, self._digests.get(artifact.uri) or digest)
        return [InputDataset(*place, facets=facets) for place, facets in datasets.items()]

    def _job(self, kind: str, name: str, description: str = "") -> Job:
        facets: dict[str, JobFacet] = {"jobType": job_type_job.JobTypeJobFacet("BATCH", INTEGRATION, kind)}
        if description:
            facets["documentation"] = documentation_job.DocumentationJobFacet(description)
        return Job(self._namespace, name, facets)

    def _job_of(self, step: StepStarted) -> Job:
        name = f"{self._run.pipeline}.{step.step}" if self._run else step.step
        return self._job("TASK", name, step.component.summary)

    def _facets(self, step: StepStarted) -> dict[str, RunFacet]:
        facets = _caller()
        if self._run:
            job = parent_run.Job(self._namespace, self._run.pipeline)
            facets = {"parent": parent_run.ParentRunFacet(parent_run.Run(self._run.id), job)}
        values = [
            execution_parameters_run.ExecutionParameter(name, value=str(value))
            for name, value in step.parameters.items()
        ]
        return {**facets, "executionParameters": execution_parameters_run.ExecutionParametersRunFacet(values)}


def _caller() -> dict[str, RunFacet]:
    """Return the facet of the run that started this process, if the variable names it."""
    namespace, _, rest = os.environ.get(PARENT, "").partition("/")
    name, _, identifier = rest.rpartition("/")
    if not name:
        return {}
    return {"parent": parent_run.ParentRunFacet(parent_run.Run(identifier), parent_run.Job(namespace, name))}


def _state(error: BaseException | None) -> RunState:
    if isinstance(error, KeyboardInterrupt):
        return RunState.ABORT
    return RunState.FAIL if error else RunState.COMPLETE


def _failure(error: BaseException | None) -> dict[str, RunFacet]:
    if error is None:
        return {}
    text = str(error) or type(error).__name__
    return {"errorMessage": error_message_run.ErrorMessageRunFacet(text, "PYTHON")}


def _place(uri: str) -> Place:
    """Return namespace and name by the conventions of OpenLineage."""
    if not is_remote(uri):
        return "file", str(Path(uri).absolute())
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def _facets_of(artifact: Artifact, digest: str | None) -> dict[str, DatasetFacet]:
    kind = "MODEL" if isinstance(artifact, Model) else "FILE"
    facets: dict[str, DatasetFacet] = {
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(kind, type(artifact).__name__)
    }
    return facets | ({"version": dataset_version_dataset.DatasetVersionDatasetFacet(digest)} if digest else {})


def _outputs(outputs: Mapping[str, Artifact], digests: Mapping[str, str | None]) -> Iterable[OutputDataset]:
    for name, artifact in outputs.items():
        statistics = {}
        if not is_remote(artifact.uri):
            sizes = [file.stat().st_size for file in artifact.files()]
            facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                size=sum(sizes), fileCount=len(sizes)
            )
            statistics["outputStatistics"] = facet
        facets = _facets_of(artifact, digests.get(name))
        yield OutputDataset(*_place(artifact.uri), facets=facets, outputFacets=statistics)
        if isinstance(artifact, Pushed) and (version := artifact.load().path):
            yield OutputDataset(*_place(version), facets=_facets_of(Model(version), None))
