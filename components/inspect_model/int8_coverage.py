"""Which operations LiteRT can compute in 8 bits, and which its XNNPACK delegate takes, both in TensorFlow's names.

Source: LiteRT's 8-bit quantization specification and kernel registry, and the XNNPACK delegate's list of operators.
An Einsum becomes a product of matrices. What a converter makes of an operation in its place may differ: the file that
`export_tflite` writes has the last word.
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
