"""Conversion of models that begin with text, tables or serialized records to formats without such ops.

The model is cut where these end (`tfopt.saved_models.text_cut`), and the core of numbers is converted. A
core that takes parsed features by name stands alone. Before any other core the preprocessing stays as a SavedModel in
``Format-Serving/Format-Preprocessing``, because a Pusher copies ``Format-Serving``. `tfopt.runtimes.load` runs both as
one model.
"""

import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.models import PREPROCESSING, SERVING_DEFAULT
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.artifacts.tensor_spec import RecordSpec, describe_specs, fixed_batch
from tfopt.conversion import calibration
from tfopt.conversion.conversion_facts import CalibrationFacts, ConversionFacts
from tfopt.conversion.lacking_operations import has_any, replace_all
from tfopt.conversion.mixes.mixed_precision import bound_degradation
from tfopt.conversion.norms_of_rows import has_norms_of_rows, replace_norms_of_rows
from tfopt.conversion.parameters import CalibratedConversion, Conversion
from tfopt.conversion.verification import draw_held_out, verify
from tfopt.data.batches import Batch, serialize_records
from tfopt.data.sample_inputs import count_records, split_batches
from tfopt.data.text_inputs import read_text_inputs
from tfopt.data.tfrecords import write_split
from tfopt.errors import ComponentError, ExamplesError
from tfopt.runtimes import Runtime
from tfopt.runtimes.preprocessed import RecordParser, core_inputs
from tfopt.runtimes.runtime import signature_error
from tfopt.saved_models import saved_model
from tfopt.saved_models.numeric_tables import has_numeric_tables, replace_numeric_tables
from tfopt.saved_models.sign_bits import has_sign_bits, replace_sign_bits
from tfopt.saved_models.text_cut import Cut, cut_text, has_preprocessing
from tfopt.storage.staging import link_tree

CUT = "pass cut_at=NODE with the node after which only numbers follow"
HELD_OUT = "held_out"  # the split of the core's examples that is compared on

log = logging.getLogger(__name__)

Convert = Callable[[Model, Examples | None, Path, Conversion], ConversionFacts]


def convert_model(
    convert: Convert, model: Model, examples: Examples | None, target: Path, parameters: Conversion
) -> ConversionFacts:
    """Convert a model; if it has text, tables or records that the format cannot hold, convert its core.

    ``convert`` is called with a model, the examples, the output's folder and the parameters.

    Returns:
        The metadata of ``convert``, with the parity of the whole model, and ``cut`` if it was cut.

    Raises:
        ComponentError: If neither the model nor its core can be converted.
    """
    facts = _Converter(convert, examples, target, parameters).convert_any(model)
    return facts | bound_degradation(facts)


class _UnevenRowsError(Exception):
    """Inputs of a core have other rows than one per record, such as one per word."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(names)
        self.names = names


@dataclass(frozen=True)
class _Converter:
    """The arguments of `convert_model`, for the model and what is made of it."""

    convert: Convert
    examples: Examples | None
    target: Path
    parameters: Conversion

    def convert_any(self, model: Model) -> ConversionFacts:
        if model.saved_model and (
            model.signature != SERVING_DEFAULT or _needs_rewrite(model.saved_model, self.parameters)
        ):
            return self.convert_signature(model)
        return self.convert_default(model)

    def convert_default(self, model: Model) -> ConversionFacts:
        """Convert the default signature, or its core if it has ops that the format cannot hold."""
        texts = read_text_inputs(model.saved_model, model.signature) if model.saved_model else {}
        has_records = any(isinstance(spec, RecordSpec) for spec in texts.values())
        refusal = None
        if not self.parameters.cut_at and (not has_records or self.parameters.allows_any_op):
            try:
                return self.convert(model, self.examples, self.target, self.parameters)
            except ExamplesError:  # the core's inputs are computed from the same records
                raise
            except ComponentError as error:
                if not texts and not _needs_cut(model):
                    raise
                refusal = error
                log.info("not converted as a whole: %s", error.received)
                for path in self.target.glob("[!.]*"):  # not what is converted
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        try:
            return self.convert_exported(model) if refusal and model.saved_model is None else self.convert_core(model)
        except ComponentError as error:
            if refusal is None or "is text; " in error.received:  # by the call for the SavedModel of a Keras file
                raise
            if error.received.endswith("is text"):  # no other op, precision or opset helps
                raise ComponentError(f"{error.received}; {refusal.received}", error.expected, error.fix) from error
            received = f"{refusal.received}; and without its preprocessing: {error.received}"
            raise ComponentError(received, refusal.expected, f"{refusal.fix}; or {CUT}") from error

    def convert_exported(self, model: Model) -> ConversionFacts:
        """Convert the SavedModel of a Keras file: after the rewrite if it needs one, otherwise its core."""
        with tempfile.TemporaryDirectory(dir=self.target, prefix=".exported-") as folder:
            exported = Model(Path(folder, "model"))
            exported.path.mkdir()
            keras_models.place_saved_model(model, exported.path / "Format-Serving")
            is_rewritten = _needs_rewrite(exported.path / "Format-Serving", self.parameters)
            return self.convert_any(exported) if is_rewritten else self.convert_core(exported)

    def convert_signature(self, model: Model) -> ConversionFacts:
        """Convert a SavedModel of the requested signature only, the converters' default, in operations they know."""
        assert model.saved_model
        frozen = saved_model.read(model.saved_model, only=model.signature)  # others may keep state
        if model.signature not in frozen.signatures:
            raise signature_error(model, model.signature, frozen.signatures)
        signatures = {SERVING_DEFAULT: frozen.signatures[model.signature]}
        requested = replace_numeric_tables(replace(frozen, signatures=signatures), self.parameters.integer_bits)
        requested = replace(requested, graph=replace_sign_bits(requested.graph))
        if has_norms_of_rows(requested.graph):
            requested = replace_norms_of_rows(requested)
        if has_any(requested.graph, self.parameters.lacking):
            requested = replace_all(requested, self.parameters.lacking)
        if requested.initializer and model.signature == SERVING_DEFAULT:  # other tables remain
            return self.convert_default(model)
        with tempfile.TemporaryDirectory(dir=self.target, prefix=".signature-") as folder:
            extracted = Model(Path(folder, "model"))
            saved_model.write(requested, extracted.path / "Format-Serving")
            return self.convert_default(extracted)

    def convert_core(self, model: Model, uneven: frozenset[str] = frozenset()) -> ConversionFacts:
        """Convert the part of numbers, cut behind the readers of the tensors ``uneven``: see `cut_text`."""
        with tempfile.TemporaryDirectory(dir=self.target, prefix=".core-") as folder:
            scratch = Path(folder)
            with saved_model.opened(model) as frozen:
                cut = cut_text(frozen, SERVING_DEFAULT, self.parameters.cut_at, uneven)
                saved_model.write(cut.core, scratch / "core" / "Format-Serving")
                if cut.preprocessing:
                    saved_model.write(cut.preprocessing, scratch / PREPROCESSING)
            core = Model(scratch / "core")
            with runtimes.load(model) as whole, runtimes.load(core) as numbers:
                before = _load_preprocessing(whole, cut, scratch)
                try:
                    written = self.write_examples(scratch / "examples", whole, before, numbers)
                except _UnevenRowsError as error:
                    return self.convert_core(model, uneven.union(cut.tensors[name] for name in error.names))
                core_examples, sampled, described = written
                facts = self.convert(core, core_examples, self.target, self.parameters)
                if "calibration" in facts:
                    facts["calibration"] |= {"digest": described["digest"], "records": described["records"]}
                if cut.preprocessing:
                    link_tree(scratch / PREPROCESSING, self.target / "Format-Serving" / PREPROCESSING)
                if facts["verified"]["run"]:
                    child = runtimes.load(Model(self.target))
                    precision = facts["precision"]
                    facts["verified"] = verify(whole, child, self.examples, sampled, self.parameters, precision)
                core_specs = describe_specs(numbers.inputs)
        log.info("%s is cut: the converted part takes %s", model.name, core_specs)
        placed = PREPROCESSING if cut.preprocessing else None
        return facts | {"cut": {"core_inputs": core_specs, "preprocessing": placed, "ops": cut.ops}}

    def write_examples(
        self, folder: Path, whole: Runtime, before: Runtime, core: Runtime
    ) -> tuple[Examples | None, Batch | None, CalibrationFacts]:
        """Write inputs of the core, computed by the whole model and its preprocessing: to calibrate and to compare on.

        Without examples they are computed from random inputs: what the core takes, such as a number of a class, is not
        random. Also return the inputs of the whole model to calibrate on, if there are any, and their description.
        """
        sampled, described = None, CalibrationFacts()
        batches: dict[str, Batch] = {}
        parameters = self.parameters
        if self.examples and isinstance(parameters, CalibratedConversion) and parameters.needs_inputs:
            sampled, described = calibration.sample_inputs(self.examples, whole.inputs, parameters)
            batches[parameters.split] = sampled
        try:
            batches[HELD_OUT], _ = draw_held_out(self.examples, whole, sampled, self.parameters)
        except ComponentError:
            if self.examples:
                raise
            return None, sampled, described  # text without a vocabulary, which only examples have
        for split, batch in batches.items():
            size = fixed_batch(whole.inputs) or count_records(batch, whole.inputs)
            chunks = []
            for chunk in split_batches(batch, whole.inputs, size):
                chunks.append(core_inputs(before, core, chunk))
                rows = count_records(chunk, whole.inputs)
                if uneven := [name for name in before.outputs if len(chunks[-1][name]) != rows]:
                    raise _UnevenRowsError(uneven)
            columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in core.inputs}
            write_split(folder, split, serialize_records(columns))
        return Examples(folder), sampled, described


def _load_preprocessing(whole: Runtime, cut: Cut, folder: Path) -> Runtime:
    if cut.preprocessing:
        return runtimes.load(Model(folder / PREPROCESSING))
    name, spec = next((name, spec) for name, spec in whole.inputs.items() if isinstance(spec, RecordSpec))
    return RecordParser(name, RecordSpec(spec.dtype, spec.shape, spec.ranked, features=cut.features))


def _needs_rewrite(folder: Path, parameters: Conversion) -> bool:
    """Return True if a SavedModel has numeric tables, sign bits, norms of rows or other operations to replace."""
    graph = read_meta_graph(folder).graph_def
    is_lacking = has_any(graph, parameters.lacking)
    return is_lacking or has_numeric_tables(folder) or has_sign_bits(graph) or has_norms_of_rows(graph)


def _needs_cut(model: Model) -> bool:
    try:
        with saved_model.opened(model) as frozen:
            return has_preprocessing(frozen) or has_sign_bits(frozen.graph)
    except ComponentError:  # the refusal of the converter says more
        return False
