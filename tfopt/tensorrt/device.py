"""Memory on the GPU, by CUDA's own Python bindings."""

from typing import Any

from numpy.typing import NDArray

from tfopt.errors import ComponentError


class Buffers:
    """One stream, and on the device one piece of memory for each name, which grows and is used again."""

    def __init__(self) -> None:
        """Create the stream."""
        self.stream: Any = _asked("cudaStreamCreate")
        self._held: dict[str, tuple[int, int]] = {}

    def reserve(self, name: str, size: int) -> int:
        """Return the address of at least so many bytes; what was there may be lost."""
        address, held = self._held.get(name, (0, 0))
        if held < size or not address:
            if address:
                _asked("cudaFree", address)
                del self._held[name]
            address = int(_asked("cudaMalloc", max(size, 1)))
            self._held[name] = address, max(size, 1)
        return address

    def upload(self, name: str, array: NDArray[Any]) -> int:
        """Copy an array there in the stream's order; return its address. The array must live until `wait`."""
        address = self.reserve(name, array.nbytes)
        self._copy(address, array.ctypes.data, array.nbytes, "cudaMemcpyHostToDevice")
        return address

    def download(self, name: str, array: NDArray[Any]) -> None:
        """Fill an array from there in the stream's order; it is whole after `wait`."""
        self._copy(array.ctypes.data, self._held[name][0], array.nbytes, "cudaMemcpyDeviceToHost")

    def wait(self) -> None:
        """Let the stream come to its end."""
        _asked("cudaStreamSynchronize", self.stream)

    def close(self) -> None:
        """Give everything back."""
        for address, _ in self._held.values():
            _asked("cudaFree", address)
        self._held = {}
        if self.stream is not None:
            _asked("cudaStreamDestroy", self.stream)
            self.stream = None

    def _copy(self, target: int, source: int, size: int, direction: str) -> None:
        from cuda.bindings import runtime

        if size:
            _asked("cudaMemcpyAsync", target, source, size, getattr(runtime.cudaMemcpyKind, direction), self.stream)


def properties() -> tuple[str, str]:
    """The compute capability and the name of the first GPU that CUDA sees.

    Raises:
        ComponentError: When CUDA sees none.
    """
    if not _asked("cudaGetDeviceCount"):
        raise ComponentError("CUDA sees no GPU", "at least one", "check CUDA_VISIBLE_DEVICES")
    found = _asked("cudaGetDeviceProperties", 0)
    name = found.name.decode() if isinstance(found.name, bytes) else str(found.name)
    return f"{found.major}.{found.minor}", name.rstrip("\0")


def _asked(function: str, *arguments: Any) -> Any:
    """Call CUDA's runtime; every function returns its status, and then what it was asked for."""
    from cuda.bindings import runtime

    status, *found = getattr(runtime, function)(*arguments)
    if int(status):
        said = runtime.cudaGetErrorString(status)[1]
        raise ComponentError(
            f"{function}: {said.decode() if isinstance(said, bytes) else said}",
            "a GPU, with memory to spare and a driver that is new enough for CUDA here",
            "see nvidia-smi: free memory there, or update the driver",
        )
    return found[0] if found else None
