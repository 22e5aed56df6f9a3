# SPDX-License-Identifier: MIT
"""What frames and their copies have in common: arrays in one block of memory."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from . import _dtypes, _frameworks
from ._description import Layout, Plane
from ._only_one import refuse_copies
from ._picture import Picture

if TYPE_CHECKING:
    import numpy as np


class Content:
    """Arrays (planes) in one block. A plane is named by its number or its name; 0 is the first one."""

    __slots__ = ()
    __reduce_ex__ = refuse_copies

    @property
    def layout(self) -> Layout:
        """Planes and picture."""
        raise NotImplementedError

    def _on_host(self) -> Content:
        """Itself, or a copy in memory of the CPU."""
        return self

    def _memory(self, index: int) -> tuple[Any, int]:
        """The buffer, in memory of the CPU, that one plane is in, and the plane's offset."""
        raise NotImplementedError

    def plane(self, plane: int | str = 0) -> Plane:
        """Name, dtype, shape, strides of one plane. Errors: IndexError or KeyError, with those there are."""
        return self.layout.planes[self._index(plane)]

    @property
    def planes(self) -> tuple[Plane, ...]:
        """All planes, in order."""
        return self.layout.planes

    @property
    def picture(self) -> Picture | None:
        """Format, size and colour; None for tensors."""
        return self.layout.picture

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension of the first plane."""
        return self.plane().shape

    @property
    def dtype(self) -> str:
        """Type of the first plane's elements, by name ("uint8")."""
        return self.plane().dtype.name

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes per step of the first plane's dimensions."""
        return self.plane().strides

    @property
    def nbytes(self) -> int:
        """Bytes of all planes, without what lies between them."""
        return sum(plane.nbytes for plane in self.planes)

    def numpy(self, plane: int | str = 0) -> np.ndarray[Any, Any]:
        """One plane as a NumPy array.

        On kind host it looks at the frame's own memory: no copy, read-only for a frame of an importer
        (the kernel protects it), and the frame stays held as long as the array lives. From a GPU it is
        a copy in memory of the CPU; the call waits for it.

        Errors: TypeError (NumPy has no such type), KeyError/IndexError (no such plane), ImportError.
        """
        import numpy

        here = self._on_host()
        place = here._index(plane)
        found = here.planes[place]
        dtype = _dtypes.to_numpy(found.dtype)
        if 0 in found.shape:
            return numpy.empty(found.shape, dtype)
        memory, offset = here._memory(place)
        return numpy.ndarray(found.shape, dtype, memory, offset, found.strides)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """All planes as NumPy arrays, by name; a plane without one by its number ("0")."""
        return {plane.name or str(i): self.numpy(i) for i, plane in enumerate(self.planes)}

    def buffer(self, plane: int | str = 0) -> memoryview:
        """One plane as a memoryview with shape and format, where there is no NumPy. As `numpy`, but the
        plane must be dense and of a type that `struct` knows. Errors: BufferError, KeyError, IndexError.
        """
        here = self._on_host()
        place = here._index(plane)
        found = here.planes[place]
        letter = _dtypes.struct_letter(found.dtype)
        if letter is None or not found.is_dense:
            raise BufferError(
                f"a memoryview can't show {found.dtype.name} {found.shape} with strides {found.strides}"
            )
        memory, offset = here._memory(place)
        part: Any = memoryview(memory)[offset : offset + found.nbytes]
        if 0 not in found.shape:
            part = part.cast(letter, found.shape) if found.shape else part.cast(letter)
        shown: memoryview = part
        return shown

    def tensor(self, plane: int | str = 0) -> Any:
        """One plane as an object with `__dlpack__`, for torch.from_dlpack and its like."""
        raise NotImplementedError

    def _importable(self, plane: int | str) -> Any:
        """What a framework's from_dlpack gets for one plane."""
        return self.tensor(plane)

    def _summary(self) -> str:
        """For repr. A frame that was published as invalid has no planes."""
        return f"{self.dtype} {self.shape}" if self.planes else "no planes"

    def _index(self, plane: int | str) -> int:
        planes = self.layout.planes
        if isinstance(plane, str):
            for place, candidate in enumerate(planes):
                if candidate.name == plane:
                    return place
            raise KeyError(f"no plane {plane!r}; there are {[p.name for p in planes]}")
        try:
            number = index(plane)
        except TypeError:
            raise TypeError(f"a plane is named by its number or its name, not by {plane!r}") from None
        if not 0 <= number < len(planes):
            raise IndexError(f"no plane {plane}; there are {len(planes)}")
        return number

    def _only_tensor(self) -> Any:
        if len(self.planes) > 1:
            names = [plane.name or i for i, plane in enumerate(self.planes)]
            raise BufferError(f"this frame has the planes {names}; export one: frame.tensor({names[0]!r})")
        return self.tensor()

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.tensor().__dlpack_device__()
        return device

    def __dlpack__(self, **options: Any) -> Any:
        """As `Array.__dlpack__`, for a frame of one plane; of several, `tensor(plane)` has it."""
        return self._only_tensor().__dlpack__(**options)

    def torch(self, plane: int | str = 0) -> Any:
        """A torch.Tensor over the same memory; torch can't mark it read-only: do not write to frames of
        kind host (the kernel ends a process that does)."""
        return _frameworks.torch_tensor(self._importable(plane))

    def cupy(self, plane: int | str = 0) -> Any:
        """A cupy.ndarray over the same GPU memory."""
        return _frameworks.cupy_array(self._importable(plane))

    def jax(self, plane: int | str = 0, *, copy: bool = False) -> Any:
        """A jax.Array over the same memory, or over a copy."""
        return _frameworks.jax_array(self._importable(plane), copy)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        converted: np.ndarray[Any, Any] = _frameworks.as_array(self.numpy(), dtype, copy)
        return converted
