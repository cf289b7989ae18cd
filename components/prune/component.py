"""The door of `prune`: what it promises, and what it refuses in the first second."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.artifacts.lineage import check_order
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.components.prune.pattern import Pattern, parse_block, parse_ratio
from tfopt.measurement.goals import read_goals


@component(image="tf")
def prune(
    model: Input[KerasModel],
    pruned: Output[KerasModel],
    examples: Input[Examples] | None = None,
    module: Input[PythonModule] | None = None,
    *,
    sparsity: Annotated[float, Between(0, 0.99)] = 0.5,
    pattern: Literal["magnitude", "n_m", "block", "channel"] = "magnitude",
    ratio: Annotated[str, Reads(parse_ratio, "2:4")] = "2:4",
    block: Annotated[str, Reads(parse_block, "1x4")] = "1x4",
    measure: Literal["parameters", "flops", "latency"] = "flops",
    importance: Literal["l1", "l2", "batch_norm", "taylor"] = "l2",
    scope: Literal["group", "global"] = "global",
    multiple: Annotated[int, Between(1, None)] = 8,
    schedule: Literal["constant", "polynomial"] = "polynomial",
    layers: list[str] = [],  # noqa: B006  (a default is read, never changed)
    label: str = "label",
    epochs: Annotated[int, Between(1, None)] = 10,
    recover: Annotated[int, Between(0, None)] = 0,
    goals: Annotated[list[str], Reads(read_goals, ("quality max_degradation 1%",))] = ["quality max_degradation 1%"],  # noqa: B006  (a declared default, never changed)
    batch_size: Annotated[int, Between(1, None)] = 64,
    learning_rate: Annotated[float, Between(0, None)] | None = None,
    seed: int = 0,
) -> None:
    """Remove the smallest weights or channels, and fine-tune the others so that the answers stay good.

    Kernels of dense, convolution and recurrent layers are pruned, in Sequential, Functional, nested and, with Keras 3,
    subclassed models. With a module the model is fine-tuned: the module is the one it was trained with, and gives the
    loss, the optimizer and the metrics; the split ``train`` is learnt, and the best epoch on ``eval`` at the final
    sparsity is kept. Without a module the weights are set to zero and that is all. Keras 3 models learn under masks of
    ours, Keras 2 models with TensorFlow's pruning toolkit; the masks are the same.

    The pattern ``channel`` removes channels physically: the model becomes a smaller dense one, which every runtime runs
    faster. Channels that meet (in residual sums, gates, depthwise convolutions, a Flatten before a Dense) go together;
    whatever is not understood keeps all of its channels, and the report says why. It takes Sequential, Functional and
    nested models of both Keras versions, and the inputs and outputs never change.

    What came of each layer is in the model card under ``report``: its zeros, its bytes raw and gzipped, and which
    runtime can turn the zeros into speed or why none can. What it cost in answers is there under ``verified``. Most
    runtimes gain nothing from zeros but a smaller file once it is compressed.

    Args:
        model: A Keras model that was neither pruned, clustered nor quantized.
        pruned: The same model with zeros in it: its Keras form, without wrappers, and its SavedModel.
        examples: To fine-tune on, and to measure the difference on; random inputs measure it without them.
        module: The Python file with ``build_model`` that the model was trained with.
        sparsity: The part of each kernel that becomes zero, or for channel the part of the measure that goes. The
            pattern n_m has its own.
        pattern: Which weights go: the smallest ones (magnitude), all but the N largest of every M input channels (n_m),
            or the weakest blocks of a matrix (block).
        ratio: For n_m: how many of how many neighbours stay.
        block: For block: how many input and output channels go or stay together.
        measure: For channel: what becomes less, the parameters, the FLOPs of a record, or the latency of the SavedModel
            as it is measured here while channels are searched.
        importance: For channel: rank channels by the norm of their filters (l1, l2), the scale of their batch norms, or
            the first-order Taylor expansion of the loss on the examples (taylor); without a module that is how sure
            the model is of its own answers.
        scope: For channel: remove the least important ones of the whole model (global), or the same part of every
            group.
        multiple: For channel: counts of channels are multiples of this, and smaller groups stay.
        schedule: While fine-tuning: prune at once (constant), or more and more over the first half (polynomial).
        layers: Names of the layers to prune, with * for any letters; every layer with a kernel when empty.
        label: The feature to learn.
        epochs: How many times to go over the split.
        recover: Epochs of a second round, for a model that misses a goal on examples of ``train`` held out of both.
        goals: What it must meet there, such as "accuracy max_degradation 0.5%"; quality is the module's first metric.
        batch_size: How many examples a step learns from.
        learning_rate: In place of that of the module's optimizer.
        seed: Draws the order of the examples.

    Raises:
        ComponentError: When the model was pruned, clustered or quantized before, no layer fits the pattern, the module
            and the model do not fit, or the pruned model gives every input the same answer. For channel also when the
            model is subclassed, no channel may go, or the sparsity cannot be reached.

    Reference:
        Zhu and Gupta, "To prune, or not to prune: exploring the efficacy of pruning for model compression", 2017;
        Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021, for 2:4; Fang et al., "DepGraph: Towards Any
        Structural Pruning", CVPR 2023, for channels.
    """
    check_order(model, "prune")
    from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs

    check_fine_tuning_inputs(examples, module, verb="prune", recover=recover)
    from tfopt.components.prune.channels.prune_channels import prune_channels
    from tfopt.components.prune.channels.selection import Wanted
    from tfopt.components.prune.prune_weights import prune_weights
    from tfopt.components.prune.request import Request
    from tfopt.training.second_round import Recovery

    request = Request(
        sparsity=sparsity,
        pattern=Pattern(pattern, parse_ratio(ratio), parse_block(block)),
        schedule=schedule,
        layers=layers,
        channels=Wanted(sparsity, measure, scope, importance, multiple, tuple(layers)),
        label=label,
        epochs=epochs,
        recovery=Recovery(recover, goals),
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    work = prune_channels if pattern == "channel" else prune_weights
    pruned.metadata |= work(model, examples, module.path if module else None, pruned.path, request)
