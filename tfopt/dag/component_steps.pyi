"""Generated from the declarations by `make docs`: do not edit."""

from collections.abc import Sequence
from typing import Literal

from tfopt.artifacts import Anomalies, Benchmark, Blessing, Decision, Evaluation, Examples, Files, InfraBlessing, KerasModel, Model, PythonModule, Recipe, SavedModel, TrainingPlan
from tfopt.dag.dag import Step, StepOutput

class ComponentSteps:
    def benchmark(
        self,
        *,
        id: str | None = None,
        baseline: Model | StepOutput,
        candidates: Sequence[Model | StepOutput],
        examples: Examples | StepOutput | None = None,
        batch_sizes: list[str] | tuple[str, ...] = ['1', '32'],
        threads: int = 1,
        seconds: float = 6.0,
        rounds: int = 60,
        min_effect: float = 0.005,
        objective: Literal['latency', 'throughput', 'size', 'size_gzipped', 'memory', 'quality'] = 'latency',
        split: str = 'eval',
        seed: int = 0,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Measure latency, throughput, load time, memory and size of models, against a baseline.

        Args:
            baseline: The model that the others are compared with.
            candidates: The other models, of any format.
            examples: Real inputs, by input name. Without them inputs are random and fit the signature.
            benchmark: ``benchmark.json``, and every recorded call in ``samples.parquet``.
            batch_sizes: Examples in a call; ``1-64`` is 1, 2, 4 and so on up to 64. A model with a fixed batch size is measured only at that size, if it is in the list. ``saturation`` reports the batch size from which larger ones give no more throughput.
            threads: Threads, and cores, of each model.
            seconds: Longest measuring time of each model, over all batch sizes. Loading and warm-up come on top.
            rounds: Number of processes that each model is measured in, at most: as many as twice the seconds allow. More narrow the interval; 8 is the fewest that allow an interval of 99 %. A model stops after 10, 16, 26 or 40 of them if its comparisons with the baseline and, for the objective, with the fastest model are decided.
            min_effect: Relative difference in speed that counts as noise. If format or settings differ from the baseline's, the interval is also widened by 2 %, the difference that two processes of a runtime may show.
            objective: The metric that the selected model shall be best at. Models are compared with the fastest one, which may take more rounds, at the smallest batch size for latency, at the largest one for throughput, and otherwise at none. All are compared with the baseline at every batch size.
            split: Split of the examples.
            seed: Seed of the order of the turns and of random inputs.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def cast_precision(
        self,
        *,
        id: str | None = None,
        model: SavedModel | StepOutput,
        examples: Examples | StepOutput | None = None,
        precision: Literal['float16', 'bfloat16'] = 'float16',
        keep: list[str] | tuple[str, ...] = ['Exp', 'Expm1', 'Log', 'Log1p', 'LogSoftmax', 'Mean', 'Pow', 'Prod', 'Softmax', 'Sum', 'Cumsum'],
        tolerance: float | None = None,
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Compute in 16 bits inside a model; inputs and outputs stay as they are.

        Args:
            model: A SavedModel or a Keras model.
            examples: Real inputs to measure the error on, matched by input name; without them, random inputs.
            cast: The same model with 16-bit arithmetic inside.
            precision: ``float16`` is eight times as precise; ``bfloat16`` has the range of float32.
            keep: TensorFlow operations that stay in float32, such as Softmax; by default sums and exponential functions.
            tolerance: Largest allowed error of an output, as a fraction of its range. The default is 0.01 for float16 and 0.05 for bfloat16.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def cluster(
        self,
        *,
        id: str | None = None,
        model: KerasModel | StepOutput,
        examples: Examples | StepOutput | None = None,
        module: PythonModule | StepOutput | None = None,
        clusters: int = 16,
        initialization: Literal['linear', 'kmeans_plus_plus', 'density'] = 'kmeans_plus_plus',
        keep_zeros: bool = True,
        layers: list[str] | tuple[str, ...] = [],
        label: str = 'label',
        epochs: int = 5,
        recover: int = 0,
        goals: list[str] | tuple[str, ...] = ['quality max_degradation 1%'],
        batch_size: int = 64,
        learning_rate: float | None = 0.0001,
        seed: int = 0,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Let the weights of each kernel share a few values, so that the file compresses well.

        Args:
            model: A Keras model that was neither clustered nor quantized.
            examples: For fine-tuning, and as inputs of the comparison with the parent; without them these are random.
            module: The Python file with ``build_model`` that the model was trained with.
            clustered: The same model with shared weights, without wrappers: its Keras form and its SavedModel.
            clusters: Number of distinct values of a kernel; zero is one of them if zeros are preserved.
            initialization: Initial values of k-means: evenly spaced (linear), drawn far from each other (kmeans_plus_plus), or quantiles of the weights (density).
            keep_zeros: Preserve the zeros of pruned kernels.
            layers: Names of the layers to cluster; * matches any letters. When empty: every layer with a kernel.
            label: The label feature.
            epochs: Number of passes over the split ``train``.
            recover: Epochs of a second round of fine-tuning, which runs if the model misses a goal on examples of ``train`` that are held out of both rounds. When 0: no second round.
            goals: Goals on the held-out examples, such as "accuracy max_degradation 0.5%"; quality is the module's first metric.
            batch_size: Examples per step.
            learning_rate: Learning rate that replaces the one of the module's optimizer, which a schedule may have reduced to almost zero.
            seed: Seed of the initial values and of the order of the examples.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def compare_backbones(
        self,
        *,
        id: str | None = None,
        examples: Examples | StepOutput | None = None,
        backbones: list[str] | tuple[str, ...] = ['MobileNetV3Small', 'MobileNetV2 0.35', 'MobileNetV2 0.5', 'MobileNetV3Large', 'MobileNetV2', 'EfficientNetB0', 'EfficientNetB1', 'EfficientNetB2', 'EfficientNetV2B0', 'ResNet50'],
        task: Literal['classification', 'regression'] = 'classification',
        classes: int | None = None,
        input_size: str | None = None,
        image: str = 'image',
        label: str = 'label',
        formats: list[str] | tuple[str, ...] = ['saved_model', 'tflite', 'onnx', 'openvino'],
        goals: list[str] | tuple[str, ...] = ['quality max_degradation 1%'],
        objective: Literal['latency', 'size', 'size_gzipped', 'memory', 'quality'] = 'latency',
        confidence: Literal['interval', 'estimate', 'point'] = 'interval',
        epochs: int = 3,
        records: int = 10000,
        batch_size: int = 64,
        minutes: float = 120.0,
        seconds: float = 6.0,
        threads: int = 1,
        seed: int = 0,
    ) -> Step:
        """Measure the cost of light backbones on this machine before training, and their quality after a short training.

        Args:
            examples: Examples with the splits ``train`` and ``eval``. Without them nothing is trained.
            comparison: ``comparison.json``, ``report.html`` with the Pareto chart, and ``modules/``, a Python file for each backbone.
            chosen: The module of the selected backbone, ``module.py``, for `train`.
            backbones: Names of ``keras.applications``, with a width multiplier if they have one: MobileNetV2 0.35.
            task: Output of the head: probabilities of classes, or numbers.
            classes: Number of classes, or of numbers. When not given: as in the examples.
            input_size: Size of the backbone's input: HEIGHTxWIDTHxCHANNELS. Images of another size are resized within the model. When not given: as in the examples; 224x224x3 without examples.
            image: The feature with the pixels, from 0 to 255, and the name of the model's input.
            label: The label feature.
            formats: Formats to measure, of saved_model, tflite, onnx, openvino and tensorrt; a format whose runtime is not installed is left out.
            goals: Goals in the syntax of `select_model`: "latency threshold 5" is at most 5 ms.
            objective: The metric that the selected backbone is best at, among those that meet the goals.
            confidence: The value that must meet a goal: the pessimistic bound of the interval, or the measured point.
            epochs: Number of epochs for each backbone.
            records: Largest number of examples of the split ``train`` to train on, drawn at random.
            batch_size: Examples per training step.
            minutes: Time budget of the whole comparison.
            seconds: Measuring time of each backbone in each runtime. Loading and warm-up come on top.
            threads: Threads, and cores, of each model whose speed is measured.
            seed: Seed of the weights, of the drawn examples, and of the order of the turns.
        """

    def compile_xla(
        self,
        *,
        id: str | None = None,
        model: SavedModel | StepOutput,
        examples: Examples | StepOutput | None = None,
        mode: Literal['whole', 'clusters'] = 'whole',
        batch_sizes: list[str] | tuple[str, ...] = ['1'],
        static: bool = False,
        sequence_buckets: list[str] | tuple[str, ...] = [],
        warm_up: bool = True,
        cache: bool = False,
        tolerance: float | None = None,
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Compile each signature of a model with XLA, entirely or in clusters, wherever the model is loaded.

        Args:
            model: A SavedModel or a Keras model.
            examples: Real inputs for the comparison and the warm-up, matched by input name; without them, random inputs.
            compiled: The same model, which is compiled when it is called.
            mode: ``whole`` makes one program of each signature (`jit_compile`), and is refused if XLA lacks an operation. With ``clusters``, TensorFlow selects the groups of operations to compile (auto-clustering) and runs the others as before: for models with text or lookup tables.
            batch_sizes: Expected batch sizes: each gets a warm-up request, and with `static` a signature.
            static: Add a signature of a fixed batch size for each, ``serving_default_batch_32``.
            sequence_buckets: Lengths to which the model pads its input along an open second axis, before the compiled program: ``16 32 64``. Each length is compiled once, instead of every length that occurs; longer sequences are compiled at their own. Padding is with zeros, and steps that were added are cut off the outputs. Only for a model that ignores such steps, as with masks, which is verified for each bucket.
            warm_up: Write warm-up requests, for each bucket too.
            cache: Store the programs that XLA compiled in ``assets.extra/xla_cache``.
            tolerance: Refuse the result if an output differs by more than this fraction of its range. The default is 0.0001, or 0.01 if the graph computes in float16, or 0.05 if it computes in bfloat16.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def configure_runtime(
        self,
        *,
        id: str | None = None,
        model: SavedModel | StepOutput,
        onednn: Literal['on', 'off', 'other'] = 'other',
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Turn oneDNN on or off for a SavedModel, wherever it is measured and served.

        Args:
            model: A SavedModel or a Keras model.
            configured: The same SavedModel with the variable.
            onednn: ``other`` is the opposite of this machine's default.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def convert_tensorrt(
        self,
        *,
        id: str | None = None,
        model: Model | StepOutput,
        examples: Examples | StepOutput | None = None,
        precision: Literal['fp32', 'tf32', 'fp16', 'bf16', 'int8'] = 'fp16',
        shapes: list[str] | tuple[str, ...] = [],
        usual_batch: int = 8,
        largest_batch: int = 32,
        calibrator: Literal['explicit', 'entropy'] = 'explicit',
        calibration_cache: str | None = None,
        workspace_mb: int | None = None,
        timing_cache: str | None = None,
        sparse: bool = False,
        version_compatible: bool = False,
        calibration_count: int = 500,
        split: str = 'train',
        seed: int = 0,
        tolerance: float | None = None,
        cut_at: list[str] | tuple[str, ...] = [],
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Convert a model to a TensorRT engine for the GPU of the machine that runs the step.

        Args:
            model: A SavedModel, a Keras or an ONNX model. String and float64 inputs are rejected: TensorRT has none.
            examples: Real inputs, matched by input name. Required to calibrate int8 unless the model has its ranges. For the other precisions they replace random inputs in the comparison with the parent.
            converted: The engine.
            precision: ``fp32`` matches the outputs of the parent; ``tf32`` rounds the factors of products to 10 bits; ``fp16`` and ``bf16`` compute in 16 bits inside; ``int8`` uses the scales of a quantized ONNX file, or of a model that went through `quantize`, and calibrates any other model.
            shapes: ``NAME=MIN:OPT:MAX`` for inputs whose sizes do not follow from the next two parameters and the examples, as in ``ids=1x8:4x32:16x128``. The smallest batch is always 1.
            usual_batch: The batch size to optimize for, if the batch size is open.
            largest_batch: The largest batch size. Larger batches are run in parts.
            calibrator: In int8, ``explicit`` calibrates on the CPU and writes symmetric scales, as TensorRT needs them, to the ONNX file. ``entropy`` is TensorRT's own calibrator, which TensorRT 11 no longer has.
            calibration_cache: A file that stores the result of ``entropy``. It is reused for the same model, examples and version of TensorRT, and replaced otherwise.
            workspace_mb: Memory that a kernel may use while it runs; by default all of the GPU's.
            timing_cache: A file that stores the measured time of each kernel, so that the next conversion is faster. Several runs may use it at the same time.
            sparse: Use kernels for weights with two zeros in every four, as `prune` makes them, where they are faster.
            version_compatible: Let later versions of TensorRT load the engine, which may make it slower.
            calibration_count: Number of examples that determine the ranges of the activations, drawn evenly from the split.
            split: The split to calibrate on. The comparison uses another one if there is one.
            seed: Seed for drawing the examples, and for the random inputs.
            tolerance: Fail if any output differs from the parent's by more than this fraction of its range. By default the limit is 0.0001 for float32. The other precisions then fail only if they are broken: under half of the records keep their class (16 bits and tf32: 95 %) or, without classes, the correlation is under 0.5 (0.99).
            cut_at: Nodes of the frozen graph after which the conversion begins; all before them stays in a SavedModel. By default it begins where text, lookup tables and serialized records end, if the format lacks their ops.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def evaluate(
        self,
        *,
        id: str | None = None,
        baseline: Model | StepOutput,
        candidates: Sequence[Model | StepOutput],
        examples: Examples | StepOutput,
        module: PythonModule | StepOutput | None = None,
        label: str = 'label',
        split: str = 'auto',
        task: Literal['auto', 'classification', 'binary', 'multi_label', 'regression', 'other'] = 'auto',
        output_kind: Literal['auto', 'logits', 'probabilities'] = 'auto',
        threshold: float = 0.5,
        metrics: list[str] | tuple[str, ...] = [],
        output: str | None = None,
        slices: list[str] | tuple[str, ...] = [],
        top_k: int = 5,
        replicates: int = 400,
        max_skipped: float = 0.0,
        seed: int = 0,
        tried: int = 1,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Measure the predictive quality of each model, and how far each candidate is from the baseline.

        Args:
            baseline: The model that the others are compared with.
            candidates: The models to compare, of any format, with the baseline's inputs.
            examples: Records that none of the models was trained on.
            module: Your Python file with functions for ``metrics``.
            evaluation: Metrics, differences, output parity, confusion matrices and slices in ``evaluation.json``.
            label: The label feature: an integer class, or numbers in a regression.
            split: Split to evaluate on. ``auto`` uses ``test`` if there is one, else ``eval``. Training keeps the epoch that is best on ``eval``, so metrics on it are slightly optimistic; ``chosen_on_it`` names such models.
            task: Meaning of the output. ``auto`` derives it from the label's type, its values and the width of the output, logs it with the reason, and checks every record. A label with one value for each output is the class if exactly one of them is 1 (one-hot), and ``multi_label`` if they are other integers 0 and 1. With ``other``, and with ``auto`` if ``metrics`` are given and no task fits, only these metrics are computed.
            output_kind: Whether the output of classes is probabilities. ``auto`` takes it for logits if it has values outside of 0 to 1, or if those of the classes do not add up to 1, and logs it.
            threshold: Probability above which a label is predicted, for the tasks binary and multi_label.
            metrics: Your own metrics (docs/metrics.md): ``module:FUNCTION`` of the input module, ``PACKAGE.MODULE:FUNCTION`` of an installed one, or ``tfma:CLASS`` of TensorFlow Model Analysis. The first one is the main metric, which goals call quality.
            output: The output to evaluate, if a model has several.
            slices: Features (integers or text, one value each). All metrics are also computed for each value of each.
            top_k: Number of the largest classes among which ``top_K_accuracy`` looks for the label.
            replicates: Number of bootstrap replicates.
            max_skipped: Largest accepted fraction of records that cannot be used: no label, a feature missing or of another type, a label that is not finite. A note of the report states how many were skipped.
            seed: Seed of the bootstrap; the same seed gives the same interval on every runner.
            tried: Number of models that the candidates were selected from by their quality on the same records, or number of evaluations on them that shall hold together. Intervals hold for so many, or for the candidates if these are more.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def export_onnx(
        self,
        *,
        id: str | None = None,
        model: Model | StepOutput,
        examples: Examples | StepOutput | None = None,
        precision: Literal['float32', 'float16', 'int8'] = 'float32',
        opset: int = 18,
        per_channel: bool = True,
        reduce_range: Literal['auto', 'on', 'off'] = 'auto',
        calibration_count: int = 200,
        split: str = 'train',
        seed: int = 0,
        tolerance: float | None = None,
        cut_at: list[str] | tuple[str, ...] = [],
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Convert a model to an ONNX file, run it and compare it with its parent.

        Args:
            model: A SavedModel or a Keras model.
            examples: Real inputs, matched by input name. Required to calibrate int8. For the other precisions they replace random inputs in the comparison with the parent.
            exported: The ONNX file.
            precision: Precision of weights and activations.
            opset: Version of the ONNX operators; choose a lower one for an older runtime.
            per_channel: In int8, give each output channel of a weight its own scale: more exact, and as fast.
            reduce_range: In int8, leave one bit of the weights unused. An x86 CPU without VNNI adds two products in 16 bits, where products of 8-bit weights overflow. ``auto`` does so if this machine has such a CPU; pass ``on`` or ``off`` if the model will run on another kind.
            calibration_count: Number of examples that determine the ranges of the activations, drawn evenly from the split.
            split: The split to calibrate on. The comparison uses another one if there is one.
            seed: Seed for drawing the examples, and for the random inputs.
            tolerance: Fail if any output differs from the parent's by more than this fraction of its range. By default the limit is 0.0001 for float32. The other precisions then fail only if they are broken: under half of the records keep their class (16 bits and tf32: 95 %) or, without classes, the correlation is under 0.5 (0.99).
            cut_at: Nodes of the frozen graph after which the conversion begins; all before them stays in a SavedModel. By default it begins where text, lookup tables and serialized records end, if the format lacks their ops.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def export_openvino(
        self,
        *,
        id: str | None = None,
        model: Model | StepOutput,
        examples: Examples | StepOutput | None = None,
        precision: Literal['float32', 'float16', 'int8'] = 'float32',
        preset: Literal['auto', 'performance', 'mixed'] = 'auto',
        reduce_range: Literal['auto', 'on', 'off'] = 'auto',
        calibration_count: int = 200,
        split: str = 'train',
        seed: int = 0,
        tolerance: float | None = None,
        cut_at: list[str] | tuple[str, ...] = [],
        max_degradation: float | None = None,
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Convert a model to OpenVINO files, run them and compare them with their parent.

        Args:
            model: A SavedModel, a Keras or an ONNX model.
            examples: Real inputs, matched by input name. Required to calibrate int8, unless `quantize` trained the ranges. For the other precisions they replace random inputs in the comparison with the parent.
            exported: The OpenVINO files.
            precision: Precision of weights and activations.
            preset: In int8, ``performance`` uses ranges that are symmetric around zero, and ``mixed`` fits the ranges of activations, which is more exact for asymmetric values. ``auto`` is mixed if the model has attention, whose ranges are then calibrated with NNCF's settings for transformers, and performance otherwise.
            reduce_range: In int8, leave one bit of the weights unused. An x86 CPU without VNNI adds two products in 16 bits, where products of 8-bit weights overflow. ``auto`` does so if this machine has such a CPU; pass ``on`` or ``off`` if the model will run on another kind.
            calibration_count: Number of examples that determine the ranges of the activations, drawn evenly from the split.
            split: The split to calibrate on. The comparison uses another one if there is one.
            seed: Seed for drawing the examples, and for the random inputs.
            tolerance: Fail if any output differs from the parent's by more than this fraction of its range. By default the limit is 0.0001 for float32. The other precisions then fail only if they are broken: under half of the records keep their class (16 bits and tf32: 95 %) or, without classes, the correlation is under 0.5 (0.99).
            cut_at: Nodes of the frozen graph after which the conversion begins; all before them stays in a SavedModel. By default it begins where text, lookup tables and serialized records end, if the format lacks their ops.
            max_degradation: In int8, the largest share of held-out records that may change their class, or loss of correlation if there are no classes; accuracy on them cannot fall by more. If it is exceeded, the layers that cause most of it are left in float32, one after another, until it is met; the figure of that form is optimistic. It is no bound for other records: `evaluate` states one.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def export_tflite(
        self,
        *,
        id: str | None = None,
        model: Model | StepOutput,
        examples: Examples | StepOutput | None = None,
        precision: Literal['float32', 'float16', 'dynamic', 'int4', 'int8', 'int16x8'] = 'float32',
        integer_io: bool = False,
        calibration_count: int = 200,
        split: str = 'train',
        seed: int = 0,
        tolerance: float | None = None,
        cut_at: list[str] | tuple[str, ...] = [],
        select_tf_ops: bool = False,
        sparse: bool = False,
        recipe: list[str] | tuple[str, ...] = [],
        max_degradation: float | None = None,
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Convert a model to a LiteRT (TFLite) file, run it and compare it with its parent.

        Args:
            model: A SavedModel or a Keras model.
            examples: Real inputs, matched by input name. Required to calibrate int8 and int16x8, unless `quantize` trained the ranges. For the other precisions they replace random inputs in the comparison with the parent.
            exported: The LiteRT file with its parent's SavedModel.
            precision: Precision of weights and activations.
            integer_io: Make the inputs and outputs integers as well, for devices without floats. Only for int8 and int16x8; TFX's own Evaluator does not quantize such inputs, so do not use it with that.
            calibration_count: Number of examples that determine the ranges of the activations, drawn evenly from the split.
            split: The split to calibrate on. The comparison uses another one if there is one.
            seed: Seed for drawing the examples, and for the random inputs.
            tolerance: Fail if any output differs from the parent's by more than this fraction of its range. By default the limit is 0.0001 for float32. The other precisions then fail only if they are broken: under half of the records keep their class (16 bits and tf32: 95 %) or, without classes, the correlation is under 0.5 (0.99).
            cut_at: Nodes of the frozen graph after which the conversion begins; all before them stays in a SavedModel. By default it begins where text, lookup tables and serialized records end, if the format lacks their ops.
            select_tf_ops: Allow ops that LiteRT lacks, which TensorFlow's Flex delegate runs. A file with such ops does not run where that delegate is not linked in. This machine is one of them, so the file is not verified.
            sparse: Store weights that are mostly zeros, as of a pruned model, by their nonzero values: a smaller file, no faster. For float32 and float16: LiteRT does not load such files of the other precisions.
            recipe: Kinds for individual layers, as "NAME=KIND": NAME is a regular expression for the name of the layer's output, KIND is float32, int8, int4, or int4x32 (also x64, x128, x256: dense layers with a scale for each block of so many weights). The last match applies. For dynamic, int4, int8 and int16x8.
            max_degradation: The largest share of held-out records that may change their class, or loss of correlation if there are no classes; accuracy on them cannot fall by more. If it is exceeded, the layers that add most error are left in float32, twice as many at each try and at most half, until it is met; the figure of that form is optimistic. It is no bound for other records: `evaluate` states one. Needs examples.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def fold_batch_norm(
        self,
        *,
        id: str | None = None,
        model: SavedModel | StepOutput,
        examples: Examples | StepOutput | None = None,
        tolerance: float | None = None,
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Fold batch normalization into the layers before it: fewer operations, the same outputs.

        Args:
            model: A SavedModel with its Keras form, or a .keras, .h5 or .hdf5 file.
            examples: Real inputs for the comparison, matched by input name. Without them inputs are random.
            folded: The same model with fewer batch norms, as a SavedModel, and as a Keras file if it had a Keras form.
            tolerance: Fail if an output differs by more than this fraction of its range. By default 0.00001 for each layer with a kernel and 0.0001 at most, 0.01 if layers compute in float16, and 0.05 if they compute in bfloat16.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def inspect_model(
        self,
        *,
        id: str | None = None,
        model: Model | StepOutput,
        budget_mflops: float | None = None,
        budget_parameters: int | None = None,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Count a model's operations, parameters and costs, and report which optimizations apply and why others do not.

        Args:
            model: A SavedModel or Keras model. For an exported model, the SavedModel of its parent is inspected, if it is stored next to it.
            inspection: ``inspection.json``, ``inspection.txt`` and ``report.html``.
            budget_mflops: Limit of the million floating-point operations for one example.
            budget_parameters: Limit of the number of parameters.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def optimize_graph(
        self,
        *,
        id: str | None = None,
        model: SavedModel | StepOutput,
        examples: Examples | StepOutput | None = None,
        passes: list[str] | tuple[str, ...] = ['inference'],
        tolerance: float | None = None,
        fast_math: bool = False,
        explain: bool = False,
        inputs: list[str] | tuple[str, ...] = [],
        outputs: list[str] | tuple[str, ...] = [],
        feature_signature: str = '',
        frozen_graph: bool = False,
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Rewrite the graph of a SavedModel by laws that preserve its function, one pass after another.

        Args:
            model: A SavedModel of TensorFlow 1 or 2; a Keras file, which is exported first; or a frozen graph, ``.pb``, with ``inputs`` and ``outputs``. Operations of old graphs that TensorFlow has removed (``BatchNormWithGlobalNormalization``) become their successors.
            examples: Real inputs for the comparison, matched by input name; without them, random inputs.
            optimized: The same model with a smaller graph, without variables but those that it writes while it serves.
            passes: Presets, laws and ``grappler:NAME``, in the order in which they are tried; ``without:NAME`` removes one from a preset.
            tolerance: Undo a pass if an output differs by more than this fraction of its range. The default is 0.0001, or 0.01 if the graph computes in float16, or 0.05 if it computes in bfloat16.
            fast_math: Speed before IEEE 754: do not compare NaN, infinities, zeros of both signs, denormals and extremes, and run laws that hold for finite numbers only.
            explain: Pass the model through unchanged; the report describes what each pass would do.
            inputs: For a frozen graph: the nodes that are fed, placeholders or inner nodes, at which the graph is cut. They become the inputs of the signature. ``NODE:1`` is another output, ``NODE=?x28x28x1`` adds a shape where the graph has none. Empty if the outputs are constants.
            outputs: For a frozen graph: the nodes that are fetched.
            feature_signature: Key of a further signature that takes the features which the signature parses from records; none by default. Servers and formats without records can use it.
            frozen_graph: Also write the optimized graph as ``frozen.pb``; the model card lists the names of its inputs and outputs under ``frozen_graph``.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def prepare_examples(
        self,
        *,
        id: str | None = None,
        data: Files | StepOutput,
        label: str = 'label',
        label_at: Literal['last', 'first'] = 'last',
        splits: list[str] | tuple[str, ...] = ['train:8', 'eval:2'],
        pack: str | None = None,
        format: Literal['auto', 'csv', 'tsv', 'jsonl', 'parquet', 'npz', 'images', 'tfrecord'] = 'auto',
        files: list[str] | tuple[str, ...] = [],
        header: Literal['auto', 'yes', 'no'] = 'auto',
        columns: list[str] | tuple[str, ...] = [],
        missing: Literal['omit', 'default', 'drop', 'error'] = 'omit',
        max_rejected: float = 0.01,
        seed: int = 0,
        classes: list[str] | tuple[str, ...] = [],
        sparse: list[str] | tuple[str, ...] = [],
        goals: list[str] | tuple[str, ...] = [],
        metrics: list[str] | tuple[str, ...] = [],
        confidence: Literal['interval', 'estimate', 'point'] = 'interval',
    ) -> Step:
        """Turn data files into split TFRecords of tf.Example, with counts and a summary of every feature.

        Args:
            data: A CSV, TSV, JSON lines (``.jsonl``, ``.ndjson``; all three plain or ``.gz``), Parquet, NPZ or TFRecord file, a folder of such files, or a folder with one subfolder of images per class. May be an address such as ``gs://…``.
            examples: TFX Examples, ``Split-NAME/data_tfrecord-*.gz``, and ``examples.json``.
            label: The column, array or feature to predict. It is stored under this name.
            label_at: Position of the label in a CSV or TSV without a header; the other columns are named ``c0``, ``c1``, ….
            splits: Names with integer weights, ``NAME:WEIGHT``.
            pack: Stores all values except the label as one float feature, in the columns' order: ``NAME=SIZExSIZE…``, such as ``image=28x28x1``. For images it is required: the feature's name, and the size they are resized to.
            format: Format of the files; ``auto`` derives it from their names.
            files: Names of the files to read, relative to the data, with ``*`` for any characters; all files if empty.
            header: States if a CSV or TSV starts with column names. ``auto`` treats its first row as names if the label is among them or none is a number.
            columns: For tables (CSV, TSV, JSON lines, Parquet): types of columns, ``NAME:TYPE`` with ``int64``, ``float32`` or ``string``. A value that does not fit makes its row unusable. A declared ``int64`` takes ``3.0`` too.
            missing: For tables: treatment of missing values, which are an empty cell, a JSON null or absent key, and a Parquet null. ``omit`` writes the example without that feature, ``default`` writes 0 or an empty text, ``drop`` leaves the row out and counts it, ``error`` refuses the data. A row without a label is unusable with ``omit`` and ``default``.
            max_rejected: Largest accepted fraction of unusable rows (wrong column count, unparsable number, NaN, undecodable image, no label).
            seed: Seed of the assignment of rows to splits.
            classes: Names of the classes of a label of words, or of class folders, in the order of their numbers; by default the sorted words. With it, classes have the same numbers in all examples, also where one of them does not occur. A row with another class is unusable.
            sparse: For TFRecords: sparse features, ``NAME=POSITIONS:VALUES:SIZE``, each from a feature with positions from 0 to SIZE - 1 and one with as many values.
            goals: The goals of `select_model`. A goal on accuracy that the evaluated split cannot show, because it has too few records, is refused before anything is trained.
            metrics: The metrics of `evaluate`; if there are any, the goal quality is not about accuracy.
            confidence: As in `select_model`; with ``estimate`` no goal is refused.
        """

    def profile_training(
        self,
        *,
        id: str | None = None,
        examples: Examples | StepOutput,
        module: PythonModule | StepOutput,
        label: str = 'label',
        batch_size: int = 64,
        precision: Literal['module', 'float32', 'mixed_float16', 'mixed_bfloat16'] = 'module',
        jit_compile: Literal['module', 'on', 'off'] = 'module',
        deterministic: bool = True,
        cache: Literal['auto', 'memory', 'disk', 'off'] = 'auto',
        shuffle_buffer: int = 0,
        memory_mb: int = 0,
        threads: int = 0,
        prefetch: int = 2,
        seconds: float = 6.0,
        rounds: int = 12,
        min_effect: float = 0.05,
        seed: int = 0,
    ) -> Step:
        """Find the bottleneck of a training, and measure settings that may make it faster.

        Args:
            examples: With the split ``train``.
            module: The Python file with ``build_model`` and optionally ``preprocess``.
            plan: ``plan.json`` with every number, ``report.html``, and ``trace/`` for TensorBoard.
            label: The label feature.
            batch_size: Examples per step.
            precision: Precision of the layers.
            jit_compile: Compile the steps with XLA.
            deterministic: The same seed must give the same weights. If so, XLA is reported but not planned.
            cache: Where parsed examples are stored after the first epoch: in memory, on disk, or nowhere (``off``); ``auto`` is in memory if they fit.
            shuffle_buffer: Size of the shuffle buffer, in examples. When 0: all examples if they fit in memory, else 20,000.
            memory_mb: Memory that examples may use. When 0: a quarter of the free memory.
            threads: Number of threads that read and parse. When 0: the number of cores.
            prefetch: Number of batches that are prepared in advance.
            seconds: Duration of the measurement of each part, and of each setting, in seconds. Startup and warm-up are added; and if examples are read again in each epoch, a turn takes whole epochs.
            rounds: Number of turns; 8 is the smallest number that allows a 99 % interval.
            min_effect: A relative difference in speed too small to matter.
            seed: Seed of the weights, the order of the examples, and the order of the turns.
        """

    def prune(
        self,
        *,
        id: str | None = None,
        model: KerasModel | StepOutput,
        examples: Examples | StepOutput | None = None,
        module: PythonModule | StepOutput | None = None,
        sparsity: float = 0.5,
        pattern: Literal['magnitude', 'n_m', 'block', 'channel'] = 'magnitude',
        ratio: str = '2:4',
        block: str = '1x4',
        measure: Literal['parameters', 'flops', 'latency'] = 'flops',
        importance: Literal['l1', 'l2', 'batch_norm', 'taylor'] = 'l2',
        scope: Literal['group', 'global'] = 'global',
        multiple: int = 8,
        schedule: Literal['constant', 'polynomial'] = 'polynomial',
        layers: list[str] | tuple[str, ...] = [],
        label: str = 'label',
        epochs: int = 10,
        recover: int = 0,
        goals: list[str] | tuple[str, ...] = ['quality max_degradation 1%'],
        batch_size: int = 64,
        learning_rate: float | None = None,
        seed: int = 0,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Remove the smallest weights or channels, and fine-tune the others to recover the quality.

        Args:
            model: A Keras model that was neither pruned, clustered nor quantized.
            examples: For fine-tuning, and as inputs of the comparison with the parent; without them these are random.
            module: The Python file with ``build_model`` that the model was trained with.
            pruned: The same model with zeros, without wrappers: its Keras form and its SavedModel.
            sparsity: Fraction of each kernel that becomes zero; for channel, the fraction of ``measure`` that is removed. Not used by n_m, whose ratio defines it.
            pattern: Pruned weights: the smallest ones (magnitude), all but the N largest of every M input channels (n_m), the weakest blocks of a matrix (block), or the least important channels, which are removed (channel).
            ratio: For n_m: how many of how many adjacent weights remain.
            block: For block: input channels and output channels of a block.
            measure: For channel: what is reduced: the parameters, the FLOPs of a record, or the latency of the SavedModel on this machine, measured during the search.
            importance: For channel: rank channels by the norm of their filters (l1, l2), the scale of their batch norms, or the first-order Taylor expansion of the loss on the examples (taylor). Without a module, the loss is computed from the model's outputs alone.
            scope: For channel: remove the least important channels of the whole model (global), or the same fraction of every group.
            multiple: For channel: numbers of channels are multiples of this; groups that are not larger do not change.
            schedule: Sparsity during fine-tuning: constant from the first step, or polynomial growth in the first half.
            layers: Names of the layers to prune; * matches any letters. When empty: every layer with a kernel.
            label: The label feature.
            epochs: Number of passes over the split ``train``.
            recover: Epochs of a second round of fine-tuning, which runs if the model misses a goal on examples of ``train`` that are held out of both rounds. When 0: no second round.
            goals: Goals on the held-out examples, such as "accuracy max_degradation 0.5%"; quality is the module's first metric.
            batch_size: Examples per step.
            learning_rate: Learning rate that replaces the one of the module's optimizer.
            seed: Seed of the order of the examples.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def push_model(
        self,
        *,
        id: str | None = None,
        model: Model | StepOutput,
        blessing: Blessing | StepOutput,
        infra_blessing: InfraBlessing | StepOutput | None = None,
        fallback: Model | StepOutput | None = None,
        examples: Examples | StepOutput | None = None,
        decision: Decision | StepOutput | None = None,
        trained: KerasModel | StepOutput | None = None,
        recipe: Recipe | StepOutput | None = None,
        destination: str,
        layout: Literal['auto', 'tf_serving', 'triton', 'plain'] = 'auto',
        keep: int | None = None,
        signing_key: str | None = None,
        warm_up_requests: int = 16,
        max_batch_size: int = 64,
        instances: int = 1,
        device: Literal['auto', 'cpu', 'gpu'] = 'auto',
        queue_delay_us: int = 0,
        register: list[str] | tuple[str, ...] = [],
        model_name: str | None = None,
        destination_uri: str | None = None,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Push a blessed model as the next numbered version of a folder.

        Args:
            model: The model to push: only its deployed files, in the format that was measured.
            blessing: The blessing of this model.
            infra_blessing: The result of `validate_serving` for this model and the fallback.
            fallback: The parent, pushed if the model is not blessed and is not the parent itself.
            examples: Source of the warm-up requests for a SavedModel in TensorFlow Serving, and of the labels of a plain LiteRT file.
            decision: The decision of this run. Its metrics are stored in ``history/`` of the destination, once, whether or not a model is pushed; `select_model` compares later runs with them.
            trained: The Keras model that this run trained. If it, or a model made from it, is pushed, it replaces the one in ``trained/`` of the destination, from which `train` starts the next run (``destination``).
            recipe: The recipe that `tune_recipe` found in this run. It replaces the one in ``recipe/`` of the destination, which `tune_recipe` tries first in the next run (``destination``), and records whether its model is served.
            pushed: ``pushed.json``: whether a model was pushed, the folder, the version, the reason, and the environment variables that its server needs, if `configure_runtime` set any.
            destination: The folder, or address in an object store, that receives numbered versions; created if it does not exist.
            layout: With ``auto`` each format gets the layout of its usual server: a SavedModel and LiteRT ``tf_serving``, a TensorRT engine ``triton``, the others ``plain``, which OpenVINO Model Server and, without a configuration, Triton load too. With ``tf_serving`` a version folder is what TensorFlow Serving loads: a SavedModel, or ``model.tflite``. With ``triton`` the destination is a model in a Triton repository: a version folder contains ``model.savedmodel/``, ``model.onnx``, ``model.xml`` with ``model.bin``, or ``model.plan``, and ``config.pbtxt`` next to the versions is generated from the signature unless the user wrote one; the server needs the backend of the format (newer images of Triton lack TensorFlow's). With ``plain`` a version folder contains ``saved_model/`` or the model's file, and the model card; in a folder the link ``latest`` points to the newest version. Next to ``model.tflite`` are ``metadata.json`` (names, types, shapes, scales) and, if the examples name their classes, ``labels.txt``.
            keep: Number of versions that remain after a push, the newest; all by default, and with 0.
            signing_key: A file with a private key (PEM, an elliptic curve), for an OpenSSF signature next to the version, ``versions/NUMBER.sig``; TFOPT_SIGNING_PASSWORD has its password. The manifest ``versions/NUMBER.sha256`` is written without a key, too. `validate_serving` checks both (``verify``).
            warm_up_requests: The largest number of recorded requests, of one example each, if there are examples.
            max_batch_size: For ``triton``: the largest batch that requests are combined to, if the batch size is open; limited to the largest batch of a TensorRT engine.
            instances: For ``triton``: number of copies of the model that run in parallel on each device.
            device: For ``triton``: where they run; ``auto`` is a GPU if there is one.
            queue_delay_us: For ``triton``: the longest time that a request waits for others to be batched with, in microseconds.
            register: Systems that are informed of a pushed version, each as KIND=ADDRESS (docs/serving.md): ``kserve=FILE.yaml`` writes an InferenceService, ``model-registry=http://HOST:PORT`` registers the version with Kubeflow's Model Registry, ``mlflow=http://HOST:PORT`` records a run with metrics, tags and files, and ``tensorboard=FOLDER`` writes the metrics as scalars. If one fails, the version stays pushed, the step fails, and a rerun registers it. Nothing is registered if nothing is pushed.
            model_name: The name to register under; by default the last part of the destination.
            destination_uri: The address under which the destination is read elsewhere, such as ``pvc://CLAIM/FOLDER`` for a volume that is mounted here; by default the destination itself.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def quantize(
        self,
        *,
        id: str | None = None,
        model: KerasModel | StepOutput,
        examples: Examples | StepOutput,
        module: PythonModule | StepOutput,
        keep_float: list[str] | tuple[str, ...] = [],
        keep_zeros: bool = True,
        keep_clusters: bool = True,
        label: str = 'label',
        epochs: int = 5,
        recover: int = 0,
        goals: list[str] | tuple[str, ...] = ['quality max_degradation 1%'],
        batch_size: int = 64,
        learning_rate: float | None = 0.0001,
        calibration_count: int = 512,
        seed: int = 0,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Fine-tune a model with simulated 8-bit weights and activations: quantization-aware training.

        Args:
            model: A trained Keras model; it may be folded, pruned or clustered.
            examples: With the split ``train``, to train on, and ``eval``.
            module: The Python file with ``build_model`` that the model was trained with.
            quantized: The model with its ranges: its Keras form and its SavedModel, which compute in floats what the 8-bit file computes in integers.
            keep_float: Names of layers that stay in floats.
            keep_zeros: Preserve the zeros of pruned kernels.
            keep_clusters: Preserve groups of weights that share a value.
            label: The label feature.
            epochs: Number of passes over the split ``train``.
            recover: Epochs of a second round of fine-tuning, which runs if the model misses a goal on examples of ``train`` that are held out of both rounds. When 0: no second round.
            goals: Goals on the held-out examples, such as "accuracy max_degradation 0.5%"; quality is the module's first metric.
            batch_size: Examples per step.
            learning_rate: Learning rate that replaces the one of the module's optimizer, which a schedule may have reduced to almost zero.
            calibration_count: Number of examples of ``train`` that set the ranges before training starts.
            seed: Seed of the order of the examples.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def quantize_graph(
        self,
        *,
        id: str | None = None,
        model: SavedModel | StepOutput,
        examples: Examples | StepOutput,
        calibration_count: int = 200,
        split: str = 'train',
        seed: int = 0,
        tolerance: float | None = None,
        operations: list[str] | tuple[str, ...] = ['Conv2D', 'DepthwiseConv2dNative', 'MatMul'],
        reduce_range: Literal['auto', 'on', 'off'] = 'auto',
        on_failure: Literal['raise', 'row'] = 'raise',
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Compute convolutions and dense layers of a SavedModel in 8 bits, with TensorFlow's oneDNN kernels.

        Args:
            model: A SavedModel or a Keras model.
            examples: Real inputs to calibrate on and to compare with, matched by input name.
            quantized: The same model with 8-bit layers, without variables.
            calibration_count: Number of examples that determine the ranges of the activations, drawn evenly from the split.
            split: The split to calibrate on. The comparison uses another one if there is one.
            seed: Seed for drawing the examples, and for the random inputs.
            tolerance: Fail if any output differs from the parent's by more than this fraction of its range. By default the limit is 0.0001 for float32. The other precisions then fail only if they are broken: under half of the records keep their class (16 bits and tf32: 95 %) or, without classes, the correlation is under 0.5 (0.99).
            operations: The TensorFlow operations that are quantized, if they have constant weights.
            reduce_range: Leave one bit of the weights unused. An x86 CPU without VNNI adds two products in 16 bits, where products of 8-bit weights overflow. ``auto`` does so if this machine has such a CPU; pass ``on`` or ``off`` if the model will run on another kind.
            on_failure: With ``row``, a model that cannot be made does not fail the step: the output records the reason, and evaluate, benchmark and select_model list it as a failed model, which is never selected.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def select_model(
        self,
        *,
        id: str | None = None,
        baseline: Model | StepOutput,
        candidates: Sequence[Model | StepOutput],
        evaluation: Evaluation | StepOutput,
        benchmark: Benchmark | StepOutput,
        goals: list[str] | tuple[str, ...] = ['quality max_degradation 1%'],
        objective: Literal['latency', 'throughput', 'size', 'size_gzipped', 'memory', 'quality'] = 'latency',
        confidence: Literal['interval', 'estimate', 'point'] = 'interval',
        better_than_constant: bool = True,
        destination: str | None = None,
        recent_runs: int = 10,
        watch: list[str] | tuple[str, ...] = ['quality max_regression 1%', 'latency max_regression 10%', 'size max_regression 10%'],
        slice_records: int = 30,
        layout: Literal['auto', 'tf_serving', 'triton', 'plain'] = 'auto',
    ) -> Step:
        """Select exactly one model: the best candidate that meets every goal, or the baseline.

        Args:
            baseline: The model that the candidates are compared with; always a candidate itself.
            candidates: The other models, the same as in evaluate and benchmark.
            evaluation: The quality of the models.
            benchmark: The speed and size of the models.
            selected: The selected model with its model card.
            decision: ``decision.json``, with the reasons for each model, and ``report.html``.
            blessing: Whether the selected model may be pushed, in the form of TFX's ModelBlessing and InfraBlessing.
            goals: Conditions that a candidate must meet.
            objective: The metric that the selected model is best at.
            confidence: The value that is compared with a goal. ``interval``: the pessimistic bound of the confidence interval, if one was measured, so that a met goal is met significantly. ``estimate``: the measured value alone, which proves nothing; the decision states it. ``point`` is the former name of ``estimate``.
            better_than_constant: Reject models that are not significantly better than the constant model, which answers every record with the most frequent class or the median of the labels.
            destination: The ``destination`` of `push_model`, with the metrics of earlier runs. No regression is reported without it, or if fewer than three runs in it were blessed.
            recent_runs: Number of the most recent blessed runs to compare with.
            watch: Goals that only produce a warning when missed; they do not affect the blessing. The selected model is compared with earlier selected models, the baseline with earlier baselines.
            slice_records: Smallest number of records that a slice needs for a goal on it; "accuracy[city=*] threshold 0.9" leaves out smaller slices, and the log names them.
            layout: As in `push_model`: a model in a format that its server does not load is not selected, whatever its metrics, so that the best of the other models is pushed.
        """

    def train(
        self,
        *,
        id: str | None = None,
        examples: Examples | StepOutput,
        module: PythonModule | StepOutput,
        plan: TrainingPlan | StepOutput | None = None,
        teacher: Model | StepOutput | None = None,
        start: KerasModel | StepOutput | None = None,
        anomalies: Anomalies | StepOutput | None = None,
        label: str = 'label',
        epochs: int = 20,
        batch_size: int = 64,
        patience: int = 5,
        seed: int = 0,
        precision: Literal['module', 'float32', 'mixed_float16', 'mixed_bfloat16', 'auto'] = 'module',
        jit_compile: Literal['module', 'on', 'off', 'clusters', 'auto'] = 'module',
        deterministic: bool = True,
        gradient_accumulation: int = 1,
        rematerialize: bool = False,
        distribution: Literal['one', 'mirrored', 'multi_worker', 'parameter_server', 'tpu'] = 'one',
        learning_rate_scaling: Literal['linear', 'sqrt', 'off'] = 'linear',
        class_weights: str | None = None,
        cache: Literal['auto', 'memory', 'disk', 'off'] = 'auto',
        shuffle_buffer: int = 0,
        memory_mb: int = 0,
        threads: int = 0,
        prefetch: int = 2,
        gpu_memory_mb: int = 0,
        destination: str | None = None,
        warm_start: bool = True,
        checkpoints: str | None = None,
        checkpoint_s: float = 600,
        temperature: float = 4.0,
        alpha: float = 0.7,
        min_change: float = 0.0,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Train the Keras model of the user's module, and save it with its preprocessing inside.

        Args:
            examples: With the splits ``train`` and ``eval``.
            module: The Python file with ``build_model`` and optionally ``preprocess``.
            plan: The output of `profile_training`. Its settings are used for parameters that have their default. If it was measured on another machine or TensorFlow, the differences are in a warning and the model card.
            teacher: A model in any format that takes features of the examples. Its outputs are matched with the module's by name, or directly if both have one output.
            start: A model of the same layers, saved by `train`, whose weights are the initial ones. The state of ``preprocess`` is the module's, and the optimizer starts without state.
            anomalies: The output of TFX's ExampleValidator or DistributionValidator for these examples. If it contains anomalies, the step fails without training.
            trained: The model as Keras file and SavedModel; their outputs were compared on the eval split.
            label: The label feature. Every output of the model that has a loss is trained on it.
            epochs: Maximum number of passes over the split.
            batch_size: Examples per step, on each device. When 0: the largest size that fits in memory.
            patience: Stop after this many epochs without a lower validation loss.
            seed: Seed of the initial weights, the order of the examples, and the random numbers of the module.
            precision: Precision of the layers during training; the model is saved in float32. ``auto`` uses 16 bits if the device supports them and a few steps are measured to be faster; ``module`` keeps the module's setting.
            jit_compile: Compile the steps with XLA. ``clusters`` lets TensorFlow choose the parts; ``auto`` uses what is faster in a few steps (never XLA with ``deterministic``).
            deterministic: Make ops add up in the same order each time, so that the same seed gives the same weights.
            gradient_accumulation: Number of batches whose gradients are averaged for one update (Keras 3).
            rematerialize: Compute activations again in the backward pass instead of storing them: less memory, more time, and the same weights except for rounding (Keras 3; docs/training.md).
            distribution: The devices that train together: ``mirrored`` is all GPUs of this machine, ``multi_worker`` the machines of the cluster in TF_CONFIG; ``parameter_server`` and ``tpu`` were never run (docs/training.md).
            learning_rate_scaling: Factor of the learning rate for R devices: R, its square root, or 1.
            class_weights: Weight of an example of each class in the loss: ``CLASS=WEIGHT,…``, or ``balanced`` for the same total weight of each class. When not given: 1.
            cache: Where parsed examples are stored after the first epoch: in memory, on disk, or nowhere (``off``); ``auto`` is in memory if they fit.
            shuffle_buffer: Size of the shuffle buffer, in examples. When 0: all examples if they fit in memory, else 20,000.
            memory_mb: Memory that examples may use. When 0: a quarter of the free memory.
            threads: Number of threads that read and parse. When 0: the number of cores.
            prefetch: Number of batches that are prepared in advance.
            gpu_memory_mb: Limit of the memory of each GPU. When 0: allocated on demand.
            destination: The folder of pushed versions (see `push_model`): without a ``start``, training starts from the Keras model behind the newest version, or from initial weights if nothing was pushed yet.
            warm_start: Start from the newest version in ``destination``. When off, ``destination`` has no effect.
            checkpoints: A folder that outlives the step (a mounted volume, or an address such as ``gs://BUCKET/FOLDER``), where the whole state is saved until the model is written. When not given: no checkpoints. Only a training with the same examples, module and parameters is resumed from it.
            checkpoint_s: Seconds between two checkpoints within an epoch. There is also one after each epoch.
            temperature: Divisor of the logits of teacher and student before they are compared: the higher, the more the classes count that the teacher considers unlikely. Outputs that are not probabilities have none.
            alpha: Fraction of the teacher in the loss; the rest is the labels'. The validation uses only the labels.
            min_change: With a start: pass it through without training if nothing about the examples, nor its loss on them, changed by more than this fraction. When 0: always train.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def tune_recipe(
        self,
        *,
        id: str | None = None,
        model: SavedModel | StepOutput,
        examples: Examples | StepOutput,
        previous: Recipe | StepOutput | None = None,
        module: PythonModule | StepOutput | None = None,
        goals: list[str] | tuple[str, ...] = ['quality max_degradation 1%'],
        objective: Literal['latency', 'throughput', 'size', 'size_gzipped', 'memory', 'quality'] = 'latency',
        label: str = 'label',
        output: str | None = None,
        metrics: list[str] | tuple[str, ...] = [],
        slices: list[str] | tuple[str, ...] = [],
        slice_records: int = 30,
        formats: list[str] | tuple[str, ...] = ['saved_model', 'tflite', 'onnx', 'openvino'],
        trials: int = 20,
        minutes: float = 30.0,
        destination: str | None = None,
        seconds: float = 6.0,
        batch_sizes: list[str] | tuple[str, ...] = ['1', '32'],
        threads: int = 1,
        records: int = 64,
        finalists: int = 3,
        seed: int = 0,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Search for the optimization steps, and their parameters, that are best for a model within a budget.

        Args:
            model: The model that the recipes start from.
            examples: Examples with the splits train (calibration) and eval (measurement).
            previous: The recipe of an earlier run.
            module: Your Python file with functions for ``metrics``.
            tuned: The selected model, in the format that won.
            recipe: ``recipe.json``: the winner's steps and commands, all trials, those of earlier runs, the Pareto front; ``report.html``, with the history and the Pareto front; ``decision.html``, the report of `select_model` on the last round; and ``optuna-journal.log``, which ``optuna-dashboard`` opens.
            goals: Conditions that a recipe must meet, in the syntax of `select_model`.
            objective: The metric that the winner is best at, among the recipes that meet the goals.
            label: The label feature.
            output: The output to evaluate, if the model has several.
            metrics: Your own metrics, in the syntax of `evaluate`. The first one is the main metric.
            slices: Features whose slices goals may name, in the syntax of `evaluate`.
            slice_records: Smallest number of records that a slice needs for a goal on it, as in `select_model`.
            formats: Formats that the winner may have: some of saved_model, tflite, onnx and openvino.
            trials: Maximum number of recipes to try.
            minutes: Maximum duration of the search. A trial that has started is finished, and the last round comes on top.
            destination: The ``destination`` of `push_model`. Without ``previous``, the recipe stored there is used; the search starts without one if there is none, or if the model selected then was not served.
            seconds: Measuring time of each model, in a trial and in the last round.
            batch_sizes: Batch sizes to measure, in the syntax of `benchmark`.
            threads: Threads, and cores, of each measured model.
            records: Number of records for the first comparison of a model with its parent.
            finalists: Maximum number of recipes in the last round.
            seed: Seed of the search, the bootstrap and the order of measurements. Which recipes are tried also depends on measured times.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """

    def validate_serving(
        self,
        *,
        id: str | None = None,
        model: Model | StepOutput,
        examples: Examples | StepOutput | None = None,
        fallback: Model | StepOutput | None = None,
        layout: Literal['auto', 'tf_serving', 'triton', 'plain'] = 'auto',
        destination: str | None = None,
        verify: bool = False,
        public_key: str | None = None,
        requests: int = 16,
        batch_size: int = 1,
        concurrency: int = 4,
        sweep: int | None = None,
        seconds: float = 1.0,
        max_p99_ms: float | None = None,
        max_seconds: float = 300.0,
        tolerance: float = 0.0001,
        max_batch_size: int = 64,
        signature: str = 'serving_default',
        trust_model_code: bool = False,
    ) -> Step:
        """Load a model as its server will, send requests to it, and decide whether it may be pushed.

        Args:
            model: The model to push, in any format.
            examples: Source of the requests, warm-up requests included; random values if missing.
            fallback: The parent that would be pushed instead of the model; tested independently.
            infra_blessing: ``infra_blessing.json``: the result for each model, with all checks and measurements.
            layout: As in `push_model`.
            destination: As in `push_model`: a user's config.pbtxt there is checked instead of a generated one.
            verify: The model is a version that `push_model` wrote, ``DESTINATION/NUMBER``: compare it with its manifest before it is loaded. A file that is missing, changed or added is an error.
            public_key: A file with the public key (PEM) that the version must be signed for; implies ``verify``.
            requests: Number of different requests.
            batch_size: Number of examples in a request, if the model's batch size is open.
            concurrency: Number of clients that send requests at the same time while latency is measured.
            sweep: Also measure 1, 2, 4, … clients, up to this number, and report from how many on throughput is saturated: more clients give less than 5 % more responses a second, with 99 % intervals.
            seconds: Duration of the latency measurement; with a sweep, for each number of clients as well.
            max_p99_ms: The largest allowed 99th percentile of latency with that many clients, in milliseconds; no limit by default.
            max_seconds: A model whose test takes longer, loading included, is not blessed.
            tolerance: The largest allowed difference in an output, as a fraction of its range.
            max_batch_size: As in `push_model`, which must get the same value.
            signature: Name of the signature of the models to run or convert, in formats with signatures.
            trust_model_code: Run Python code that a Keras file contains, such as that of a Lambda layer; off: refuse such files.
        """
