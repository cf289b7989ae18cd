"""Replace SpaceToBatchND, a depthwise convolution and BatchToSpaceND by a dilated depthwise convolution.

    batch_to_space(depthwise(space_to_batch(x, d, paddings), K, VALID), d, crops) = depthwise(x, K, dilation d)

    before    x -> SpaceToBatchND(d) -> DepthwiseConv2dNative(K, VALID) -> BatchToSpaceND(d) -> y
    after     x -> DepthwiseConv2dNative(K, SAME or VALID, dilations d) -> y

The law is that of `fuse_dilated_convs`, with its conditions. TensorFlow computes the result on a CPU with oneDNN only:
it refuses the graph where ``TF_ENABLE_ONEDNN_OPTS=0`` is set, and where it is built without oneDNN.

Source: `flatten_atrous_conv` of the Graph Transform Tool.
"""

from tfopt.graph.law import LocalLaw
from tfopt.graph.laws.fuse_dilated_convs import patterns, rewrite, when

LAW = LocalLaw(
    patterns("DepthwiseConv2dNative"),
    when,
    rewrite,
    rounds=True,
    follows="fuse_dilated_convs",
    opt_in="TensorFlow runs dilated depthwise convolutions on a CPU with oneDNN only",
)
