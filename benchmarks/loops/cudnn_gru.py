"""A GRU of cuDNN, which JAX does not call, by ctypes: what `cudnn.py` puts beside the scan's.

    r = sigmoid(W_r x + R_r h + b_r)            h' = tanh(W_n x + b_n + r * (R_n h + b_Rn))
    z = sigmoid(W_z x + R_z h + b_z)            h = (1 - z) * h' + z * h

is what cuDNN, PyTorch and `recurrent._gru` compute (b_Rn is zero there). Times are of calls in CUDA
graphs; `train` is the forward pass, both backward passes and the memset of the gradients: a lower
bound of a training step, since the dense layer, the loss and the update are not in it. The gradient
of the input is, which the scan's step does without: cuDNN's backward pass makes it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fusionstitch.errors import MeasureError

SONAME = "libcudnn.so.9"
#: cudnnRNNAlgo_t. Those that have no kernels for a GRU are left out, with the reason.
ALGORITHMS = {"standard": 0, "persist_static": 1, "persist_static_small_h": 3}
#: cudnnMathType_t. The default may round what it multiplies to TF32, as PyTorch's and XLA's do.
MATHS = {"default": 0, "fma": 3}

_GRU, _DOUBLE_BIAS, _UNIDIRECTIONAL, _LINEAR_INPUT, _PADDED_IO_DISABLED = 3, 2, 0, 0, 0
_FLOAT, _SEQ_MAJOR_PACKED, _WGRAD_ADD = 0, 1, 0
#: Our gates are z, r, n; cuDNN's layers are r, z (i in its manual), n of the input, then of h.
_ORDER = (1, 0, 2)

_TYPES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "q": ctypes.c_ulonglong,
}
_MADE = ("", *(f"{one}Descriptor" for one in ("RNN", "RNNData", "Tensor", "Dropout")))
#: The parameters' types of the functions used, whose names begin with "cudnn".
SIGNATURES = {
    **{f"{verb}{one}": "p" for one in _MADE for verb in ("Create", "Destroy")},
    "SetStream": "pp",
    "SetDropoutDescriptor": "ppfpzq",
    "SetRNNDescriptor_v8": "p" + 12 * "i" + "pu",
    "SetRNNDataDescriptor": "piiiiipp",
    "SetTensorNdDescriptor": "piipp",
    "GetRNNWeightSpaceSize": "ppp",
    "GetRNNTempSpaceSizes": "ppippp",
    "GetRNNWeightParams": "ppizpipppp",
    "RNNForward": "ppi" + 11 * "p" + "zpzpzp",
    "RNNBackwardData_v8": 16 * "p" + "zpzpzp",
    "RNNBackwardWeights_v8": "ppi" + 7 * "p" + "zpzpzp",
}


def library() -> str:
    """Where libcudnn lies: in NVIDIA's wheel, or where the linker finds it."""
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder, "lib", SONAME)).exists():
            return str(path)
    if name := ctypes.util.find_library("cudnn"):
        return name
    raise MeasureError(
        f"cuDNN was not found: no package nvidia.cudnn holds lib/{SONAME}, and the linker knows no "
        "libcudnn. `pip install nvidia-cudnn-cu13` (for CUDA 12: nvidia-cudnn-cu12) brings it."
    )


class Cudnn:
    """The functions of libcudnn, called by their names without "cudnn". Raises MeasureError where
    it cannot be loaded and where a call fails."""

    def __init__(self) -> None:
        path = library()
        try:
            self._library: Any = ctypes.CDLL(path)
        except OSError as error:
            raise MeasureError(f"{path} cannot be loaded: {error}.") from error
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p
        self._library.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = int(self._library.cudnnGetVersion())
        if self.version < 90000:
            raise MeasureError(f"{path} is cuDNN {self.version}; 90000 or a later one is needed.")
        for name, types in SIGNATURES.items():
            getattr(self._library, f"cudnn{name}").argtypes = [_TYPES[one] for one in types]

    def __call__(self, name: str, *given: Any) -> None:
        if status := getattr(self._library, f"cudnn{name}")(*given):
            said = self._library.cudnnGetErrorString(status).decode()
            why = ctypes.create_string_buffer(300)
            self._library.cudnnGetLastErrorString(why, ctypes.c_size_t(len(why)))
            raise MeasureError(f"cudnn{name}: {said} ({status}). {why.value.decode()}".strip())


def layers(params: Mapping[str, Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The weights of `recurrent._gru` as cuDNN's six layers, by their numbers: matrix, bias."""
    w, u, b = (np.split(np.asarray(params[name]), 3, axis=-1) for name in "wub")
    zero = np.zeros_like(b[0])
    return [(w[i].T, b[i]) for i in _ORDER] + [(u[i].T, zero) for i in _ORDER]


def joined(six: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """What `layers` takes apart; the biases of the state, which ours has not, are left out."""
    ours = [_ORDER.index(i) for i in range(3)]
    w, u = (np.concatenate([six[k + i][0].T for i in ours], axis=-1) for k in (0, 3))
    return {"w": w, "u": u, "b": np.concatenate([six[i][1] for i in ours])}


class Gru:
    """cuDNN's GRU from a zero state by one algorithm, in CuPy's buffers. `forward` and `train` go
    to CuPy's current stream; what they make is in `results`."""

    def __init__(
        self, cudnn: Cudnn, stack: ExitStack, algorithm: int, math: int, given: tuple[Any, Any, Any]
    ) -> None:
        """Given are parameters, input [steps, batch, width] and the gradient of the states; `stack`
        frees what cuDNN holds."""
        import cupy

        self._cudnn, self._stack = cudnn, stack
        params, xs, dy = given
        (steps, batch, width), hidden = xs.shape, dy.shape[-1]
        self._handle, self._rnn = self._made(""), self._made("RNNDescriptor")
        dropout, self._h = self._made("DropoutDescriptor"), self._made("TensorDescriptor")
        self._x, self._y = self._made("RNNDataDescriptor"), self._made("RNNDataDescriptor")
        modes = algorithm, _GRU, _DOUBLE_BIAS, _UNIDIRECTIONAL, _LINEAR_INPUT, _FLOAT, _FLOAT, math
        sizes = width, hidden, hidden, 1, dropout, _PADDED_IO_DISABLED
        cudnn("SetDropoutDescriptor", dropout, self._handle, 0.0, None, 0, 0)
        cudnn("SetRNNDescriptor_v8", self._rnn, *modes, *sizes)
        lengths, three = (ctypes.c_int32 * batch)(*[steps] * batch), ctypes.c_int32 * 3
        for made, size in ((self._x, width), (self._y, hidden)):
            given = _FLOAT, _SEQ_MAJOR_PACKED, steps, batch, size, lengths, None
            cudnn("SetRNNDataDescriptor", made, *given)
        given = three(1, batch, hidden), three(batch * hidden, hidden, 1)
        cudnn("SetTensorNdDescriptor", self._h, _FLOAT, 3, *given)

        self._xs, self._dy = cupy.asarray(xs), cupy.asarray(dy)
        self._dx, self._states = cupy.zeros_like(self._xs), cupy.zeros_like(self._dy)
        ends = (cupy.zeros((batch, hidden), cupy.float32) for _ in range(4))
        self._hx, self._hy, self._dhx, self._dhy = ends
        [size] = self._sizes(1, "GetRNNWeightSpaceSize")
        self._weights, self._slopes = (cupy.zeros(size // 4, cupy.float32) for _ in "ws")
        self._spaces = []  # for inference and for training: the workspace and the reserve
        for training in (0, 1):
            sizes = self._sizes(2, "GetRNNTempSpaceSizes", training, self._x)
            self._spaces.append([cupy.zeros(size, cupy.uint8) for size in sizes])
        for places, parts in zip(self._views(self._weights), layers(params), strict=True):
            for place, part in zip(places, parts, strict=True):
                place[...] = cupy.asarray(part)
        cupy.cuda.Device().synchronize()

    def forward(self, training: int = 0) -> None:
        """All states, as for inference unless it is `training`."""
        import cupy

        self._cudnn("SetStream", self._handle, cupy.cuda.get_current_stream().ptr)
        given = self._x, self._xs, self._y, self._states, self._h, self._hx, self._hy
        given = training, None, *given, None, None, None
        self._call("RNNForward", *given, self._weights, training=training)

    def train(self) -> None:
        """All states, and the gradients of weights and input."""
        self.forward(1)
        given = self._y, self._states, self._dy, self._x, self._dx, self._h, self._hx, self._dhy
        given = None, *given, self._dhx, None, None, None, None
        self._call("RNNBackwardData_v8", *given, self._weights)
        self._slopes.data.memset_async(0, self._slopes.nbytes)
        given = self._x, self._xs, self._h, self._hx, self._y, self._states
        self._call("RNNBackwardWeights_v8", _WGRAD_ADD, None, *given, self._slopes)

    def results(self, what: str) -> dict[str, np.ndarray]:
        """The states; of `train` the gradients of weights and input by their names, too."""
        found = {"states": self._states.get()}
        if what == "train":
            six = [(m.get(), b.get()) for m, b in self._views(self._slopes)]
            found |= {**joined(six), "xs": self._dx.get()}
        return found

    def _made(self, what: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._cudnn(f"Create{what}", ctypes.byref(made))
        self._stack.callback(self._cudnn, f"Destroy{what}", made)
        return made

    def _call(self, name: str, *given: Any, training: int = 1) -> None:
        """A call whose last argument, an array, has its size before it, as scratch after has."""
        sized = [(one.nbytes, one) for one in (given[-1], *self._spaces[training])]
        args = (*given[:-1], *(one for pair in sized for one in pair))
        pointers = (one.data.ptr if hasattr(one, "data") else one for one in args)
        self._cudnn(name, self._handle, self._rnn, *pointers)

    def _sizes(self, count: int, name: str, *given: Any) -> list[int]:
        found = [ctypes.c_size_t() for _ in range(count)]
        self._cudnn(name, self._handle, self._rnn, *given, *map(ctypes.byref, found))
        return [one.value for one in found]

    def _views(self, flat: Any) -> list[tuple[Any, Any]]:
        """cuDNN's six layers in its `flat` array of weights or gradients: matrix, bias."""
        hidden, found = self._hx.shape[1], []
        for layer in range(6):
            of = [(self._made("TensorDescriptor"), ctypes.c_void_p()) for _ in "mb"]
            given = [one for made, at in of for one in (made, ctypes.byref(at))]
            space = 0, flat.nbytes, flat.data.ptr, layer, *given
            self._cudnn("GetRNNWeightParams", self._handle, self._rnn, *space)
            matrix, bias = (((at.value or 0) - flat.data.ptr) // 4 for _, at in of)
            width = self._xs.shape[-1] if layer < 3 else hidden
            one = flat[matrix : matrix + hidden * width].reshape(hidden, width)
            found.append((one, flat[bias : bias + hidden]))
        return found
