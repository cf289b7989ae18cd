"""The door of `cluster`: what it promises, and what it refuses in the first second."""

from typing import Annotated, Literal

from tfopt.artifacts import Examples, KerasModel, PythonModule
from tfopt.artifacts.lineage import check_order
from tfopt.component import Between, Input, Output, Reads, component
from tfopt.measurement.goals import read_goals


@component(image="tf")
def cluster(
    model: Input[KerasModel],
    clustered: Output[KerasModel],
    examples: Input[Examples] | None = None,
    module: Input[PythonModule] | None = None,
    *,
    clusters: Annotated[int, Between(2, 256)] = 16,
    initialization: Literal["linear", "kmeans_plus_plus", "density"] = "kmeans_plus_plus",
    keep_zeros: bool = True,
    layers: list[str] = [],  # noqa: B006  (a default is read, never changed)
    label: str = "label",
    epochs: Annotated[int, Between(1, None)] = 5,
    recover: Annotated[int, Between(0, None)] = 0,
    goals: Annotated[list[str], Reads(read_goals, ("quality max_degradation 1%",))] = ["quality max_degradation 1%"],  # noqa: B006  (a declared default, never changed)
    batch_size: Annotated[int, Between(1, None)] = 64,
    learning_rate: Annotated[float, Between(0, None)] | None = 1e-4,
    seed: int = 0,
) -> None:
    """Let the weights of each kernel share a few values, so that the file compresses well.

    Each weight takes the nearest of a kernel's few values. The file is as large as before until something compresses it
    (gzip, an app store, a Docker layer), and nothing gets faster. With a module the values are fine-tuned, and weights
    that share one go on sharing it: Keras 3 models learn under projections of ours, Keras 2 models with TensorFlow's
    Model Optimization Toolkit. Without a module the weights are clustered and that is all.

    Kernels of dense and convolution layers are clustered, in Sequential, Functional, nested and, with Keras 3,
    subclassed models; depthwise ones, which hold few weights, are not. Zeros left by `prune` stay zeros. The values and
    the bytes of each layer, raw and gzipped, are in the model card under ``report``, and so is each batch norm that an
    exporter would fold into a clustered kernel, which gives every channel other values: `fold_batch_norm` first.

    Args:
        model: A Keras model that was neither clustered nor quantized.
        clustered: The same model with shared weights: its Keras form, without wrappers, and its SavedModel.
        examples: To fine-tune on, and to measure the difference on; random inputs measure it without them.
        module: The Python file with ``build_model`` that the model was trained with.
        clusters: How many values a kernel may have, zero among them.
        initialization: Where the search for the values starts: evenly spread (linear), drawn far from each other
            (kmeans_plus_plus), or where the weights lie densest (density).
        keep_zeros: Keep the zeros of pruned kernels.
        layers: Names of the layers to cluster, with * for any letters; every layer with a kernel when empty.
        label: The feature to learn.
        epochs: Go at most so many times over the split.
        recover: Epochs of a second round, for a model that misses a goal on examples of ``train`` held out of both.
        goals: What it must meet there, such as "accuracy max_degradation 0.5%"; quality is the module's first metric.
        batch_size: How many examples a step learns from.
        learning_rate: In place of that of the module's optimizer, whose schedule may have brought it to nothing.
        seed: Draws the first values, and the order of the examples.

    Raises:
        ComponentError: When the model was clustered or quantized before, no kernel has enough weights, a name fits no
            layer, or the module, the examples and the model do not fit.

    Reference:
        Han, Mao and Dally, "Deep Compression", ICLR 2016, section 3; Arthur and Vassilvitskii, "k-means++: The
        Advantages of Careful Seeding", SODA 2007.
    """
    check_order(model, "cluster")
    from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs

    check_fine_tuning_inputs(examples, module, verb="cluster", recover=recover)
    from tfopt.components.cluster.cluster_weights import Request, cluster_weights
    from tfopt.training.second_round import Recovery

    request = Request(
        clusters=clusters,
        initialization=initialization,
        keep_zeros=keep_zeros,
        layers=layers,
        label=label,
        epochs=epochs,
        recovery=Recovery(recover, goals),
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
    )
    clustered.metadata |= cluster_weights(model, examples, module.path if module else None, clustered.path, request)
