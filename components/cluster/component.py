from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.component import Effect, Group, Input, Output, component
from tfopt.components.cluster.parameters import Settings
from tfopt.processes.subprocess_call import run_isolated
from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs


@component(
    image="tf",
    purpose="fine_tuning",
    tolerance=None,
    model_signature=True,
    effect=Effect("shared weights"),
    not_after={
        "shared weights": "clustering twice only adds rounding errors",
        "quantization": "the trained ranges fit the unchanged weights",
    },
)
def cluster(
    model: Input[KerasModel],
    clustered: Output[KerasModel],
    examples: Input[Examples] | None = None,
    module: Input[PythonModule] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Let the weights of each kernel share a few values, so that the file compresses well.

    Each weight is replaced by the nearest of a few values of its kernel. The file has the same size as before until it
    is compressed (gzip, an app store, a Docker layer); inference does not become faster. With a module, the values are
    fine-tuned, and weights that share a value continue to share it: Keras 3 models are trained with a projection after
    each step, Keras 2 models with TensorFlow's Model Optimization Toolkit. Without a module, the weights are clustered
    and the model is not trained.

    Kernels of dense and convolution layers are clustered, in Sequential, Functional, nested and, with Keras 3,
    subclassed models. Depthwise kernels, which have few weights, are not. Zeros from `prune` stay zeros. The model card
    contains, under ``report``, the number of values and the bytes of each layer, raw and gzipped, and each batch norm
    that an exporter would fold into a clustered kernel, which gives every channel other values: run `fold_batch_norm`
    first.

    Args:
        model: A Keras model that was neither clustered nor quantized.
        clustered: The same model with shared weights, without wrappers: its Keras form and its SavedModel.
        examples: For fine-tuning, and as inputs of the comparison with the parent; without them these are random.
        module: The Python file with ``build_model`` that the model was trained with.
        settings: How the model is clustered and fine-tuned.

    Raises:
        ComponentError: If the model was clustered or quantized before, no kernel has enough weights, a name matches no
            layer, or the module, the examples and the model do not fit.

    Reference:
        Han, Mao and Dally, "Deep Compression", ICLR 2016, section 3; Arthur and Vassilvitskii, "k-means++: The
        Advantages of Careful Seeding", SODA 2007.
    """
    check_fine_tuning_inputs(examples, module, verb="cluster", recover=settings.recover)
    from tfopt.components.cluster.cluster_weights import cluster_weights  # more than a declaration needs

    arguments = model, examples, module.path if module else None, clustered.path, settings
    if module:
        clustered.metadata |= cluster_weights(*arguments)
    else:
        clustered.metadata |= run_isolated(cluster_weights, *arguments, doing="clustering the weights")
