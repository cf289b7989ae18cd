from tfopt.artifacts import Examples, KerasModel, Model, PythonModule
from tfopt.component import Effect, Group, Input, Output, component
from tfopt.components.prune.parameters import Settings
from tfopt.processes.subprocess_call import run_isolated
from tfopt.training.checkpointing.stored_measurements import create_local_folders
from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs, check_teacher


@component(
    image="tf",
    purpose="fine_tuning",
    tolerance=None,
    model_signature=True,
    effect=Effect("zeros", only={"pattern": ("magnitude", "n_m", "block")}),
    not_after={
        "zeros": "its masks are not stored, so the zeros would move",
        "shared weights": "new zeros and fine-tuning would make shared weights differ",
        "quantization": "the trained ranges fit the unchanged weights",
    },
)
def prune(
    model: Input[KerasModel],
    pruned: Output[KerasModel],
    examples: Input[Examples] | None = None,
    module: Input[PythonModule] | None = None,
    teacher: Input[Model] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Remove the smallest weights or channels, and fine-tune the others to recover the quality.

    Kernels of dense, convolution and recurrent layers are pruned, in Sequential, Functional, nested and, with Keras 3,
    subclassed models. With a module, the model is fine-tuned on the split ``train``. The module is the one that the
    model was trained with; its loss, optimizer and metrics are used. The weights of the best epoch on ``eval`` at the
    final sparsity are saved. Without a module, the weights are set to zero and the model is not trained. Keras 3 models
    are trained with masks of tfopt, Keras 2 models with TensorFlow's pruning toolkit; the masks are the same.

    The pattern ``channel`` removes channels physically: the model becomes a smaller dense one, which every runtime runs
    faster. Channels that depend on each other (in residual sums, gates, depthwise convolutions, a Flatten before a
    Dense) are removed together. Channels of LSTM, GRU and SimpleRNN are their units, also in Bidirectional, and those
    of MultiHeadAttention its heads. Layers that are not supported keep all of their channels, and the report contains
    the reason. Sequential, Functional and nested models of both Keras versions are supported; inputs and outputs never
    change.

    The model card contains, under ``report``, the zeros of each layer, its bytes raw and gzipped, and which runtime is
    faster with these zeros or why none is. The differences of the outputs are under ``verified``. For most runtimes,
    zeros only make the compressed file smaller.

    Args:
        model: A Keras model that was neither pruned, clustered nor quantized.
        pruned: The same model with zeros, without wrappers: its Keras form and its SavedModel.
        examples: For fine-tuning, and as inputs of the comparison with the parent; without them these are random.
        module: The Python file with ``build_model`` that the model was trained with.
        teacher: A model to learn from besides the labels, in any format that takes features of the examples, such as
            the model itself before anything is removed (docs/training.md). When not given: the labels alone.
        settings: How the model is pruned and fine-tuned.

    Raises:
        ComponentError: If the model was pruned, clustered or quantized before, no layer fits the pattern, the module
            and the model do not fit, or the pruned model has the same outputs for all inputs. For channel also if the
            model is subclassed, no channel can be removed, or the sparsity cannot be reached.

    Reference:
        Zhu and Gupta, "To prune, or not to prune: exploring the efficacy of pruning for model compression", 2017;
        Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021, for 2:4; Fang et al., "DepGraph: Towards Any
        Structural Pruning", CVPR 2023, for channels; Wen et al., "Learning Intrinsic Sparse Structures within Long
        Short-Term Memory", ICLR 2018, for units.
    """
    check_fine_tuning_inputs(examples, module, verb="prune", recover=settings.recover)
    check_teacher(teacher, settings, module)
    folders = create_local_folders(settings.checkpoints)
    from tfopt.components.prune.channels.prune_channels import prune_channels  # imports TensorFlow
    from tfopt.components.prune.prune_weights import prune_weights

    work = prune_channels if settings.pattern == "channel" else prune_weights
    arguments = model, examples, module.path if module else None, pruned.path, settings, teacher
    if module:
        pruned.metadata |= work(*arguments)
    else:
        pruned.metadata |= run_isolated(work, *arguments, doing="pruning the weights", writes=folders)
