"""Print what TensorFlow sees, and fail if convolutions, matrix products and XLA do not run on a GPU.

python tools/gpu/check.py
"""

import sys
import time

import tensorflow as tf

import tfopt
from tfopt.errors import ComponentError
from tfopt.tensorrt.machine import detect_machine


def main() -> None:
    """Run one operation of each kind on the first GPU; exit with a reason if there is none."""
    cuda = tf.sysconfig.get_build_info().get("cuda_version")
    print(f"tfopt {tfopt.__version__}, TensorFlow {tf.__version__}, CUDA {cuda}")
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        sys.exit("TensorFlow sees no GPU: see its log above for the library that it could not load")
    print([tf.config.experimental.get_device_details(gpu) for gpu in gpus])
    with tf.device("GPU:0"):
        square, images = tf.random.normal((2048, 2048)), tf.random.normal((8, 64, 64, 32))
        print("product", tf.reduce_mean(square @ square).numpy())
        kernel = tf.random.normal((3, 3, 32, 64))
        print("convolution", tf.reduce_mean(tf.nn.conv2d(images, kernel, 1, "SAME")).numpy())
        start = time.perf_counter()
        compiled = tf.function(lambda value: tf.reduce_sum(tf.nn.relu(value @ value)), jit_compile=True)
        print(f"XLA {compiled(square).numpy()}, first call {time.perf_counter() - start:.1f} s")
    try:
        print(detect_machine())
    except ComponentError as error:
        print(f"no engines can be built\n{error}")


if __name__ == "__main__":
    main()
