"""TensorFlow ops that LiteRT computes in 8 bits, and those that its XNNPACK delegate runs.

Sources: LiteRT's 8-bit quantization specification and kernel registry, and the XNNPACK delegate's list of operators.
An Einsum becomes a matrix product. A converter may replace an op by another one, so the file that `export_tflite`
writes may differ.
"""

_BOTH = """
Abs Add AddV2 AvgPool BatchMatMul BatchMatMulV2 BiasAdd ConcatV2 Conv2D Conv2DBackpropInput DepthToSpace
DepthwiseConv2dNative Einsum Elu Exp ExpandDims FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 LeakyRelu MatMul
MaxPool Maximum Mean Minimum Mul Pad PadV2 Relu Relu6 Reshape ResizeBilinear Rsqrt Sigmoid Slice Softmax
SpaceToDepth Split SplitV SquaredDifference Squeeze StridedSlice Sub Sum Tanh Transpose
"""
BOTH = set(_BOTH.split())
_INTEGER = """
ArgMax ArgMin BatchToSpaceND Equal Gather GatherV2 Greater GreaterEqual Less LessEqual LogSoftmax Max Min MirrorPad
NotEqual Pack ResizeNearestNeighbor Select SelectV2 Shape SpaceToBatchND Tile Unpack
"""
INTEGER = BOTH | set(_INTEGER.split())
_XNNPACK = """
Ceil Div Floor Log Neg RealDiv Round Sqrt Square
"""
XNNPACK = BOTH | set(_XNNPACK.split())
