"""GPU memory and properties through CUDA's Python bindings."""

from typing import Any

from numpy.typing import NDArray

from tfopt.errors import ComponentError


class Buffers:
    """A CUDA stream and one reusable device buffer per name."""

    def __init__(self) -> None:
        """Create the stream."""
        self.stream: Any = _cuda("cudaStreamCreate")
        self._buffers: dict[str, tuple[int, int]] = {}

    def reserve(self, name: str, size: int) -> int:
        """Return the device address of a buffer of at least this size in bytes; its content may be lost."""
        address, capacity = self._buffers.get(name, (0, 0))
        if capacity < size or not address:
            if address:
                _cuda("cudaFree", address)
                del self._buffers[name]
            address = int(_cuda("cudaMalloc", max(size, 1)))
            self._buffers[name] = address, max(size, 1)
        return address

    def upload(self, name: str, array: NDArray[Any]) -> int:
        """Copy an array to the device asynchronously and return its address. The array must live until `wait`."""
        address = self.reserve(name, array.nbytes)
        self._copy(address, array.ctypes.data, array.nbytes, "cudaMemcpyHostToDevice")
        return address

    def download(self, name: str, array: NDArray[Any]) -> None:
        """Copy a buffer into an array asynchronously; the array is complete after `wait`."""
        self._copy(array.ctypes.data, self._buffers[name][0], array.nbytes, "cudaMemcpyDeviceToHost")

    def wait(self) -> None:
        """Wait until all work in the stream has finished."""
        _cuda("cudaStreamSynchronize", self.stream)

    def close(self) -> None:
        """Release the buffers and the stream."""
        for address, _ in self._buffers.values():
            _cuda("cudaFree", address)
        self._buffers = {}
        if self.stream is not None:
            _cuda("cudaStreamDestroy", self.stream)
            self.stream = None

    def _copy(self, target: int, source: int, size: int, direction: str) -> None:
        from cuda.bindings import runtime

        if size:
            _cuda("cudaMemcpyAsync", target, source, size, getattr(runtime.cudaMemcpyKind, direction), self.stream)


def gpu_properties() -> tuple[str, str]:
    """Return the compute capability and the name of the first GPU that CUDA sees.

    Raises:
        ComponentError: If CUDA sees no GPU.
    """
    if not _cuda("cudaGetDeviceCount"):
        raise ComponentError("CUDA sees no GPU", "at least one", "check CUDA_VISIBLE_DEVICES")
    device = _cuda("cudaGetDeviceProperties", 0)
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    return f"{device.major}.{device.minor}", name.rstrip("\0")


def _cuda(function: str, *arguments: Any) -> Any:
    """Call a function of CUDA's runtime, which returns its status and results, and return the first result."""
    from cuda.bindings import runtime

    status, *results = getattr(runtime, function)(*arguments)
    if int(status):
        text = runtime.cudaGetErrorString(status)[1]
        received = f"{function}: {text.decode() if isinstance(text, bytes) else text}"
        expected = "a GPU with free memory, and a driver that is new enough for this CUDA version"
        raise ComponentError(received, expected, "see nvidia-smi: free memory there, or update the driver")
    return results[0] if results else None
