"""Entries of a model card that conversions to other formats write."""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from tfopt.artifacts.model_card import Verification
from tfopt.value_types import JsonObject


class CalibrationFacts(TypedDict, total=False):
    """The examples that a model was calibrated on: ``requested`` and ``used`` ones, and their identifiers."""

    requested: int
    used: int
    split: str
    seed: int
    digest: str
    records: list[str]
    note: str


class FloatPartFacts(TypedDict):
    """Names and types of operations that stay in float; see `tfopt.conversion.exact_values`."""

    exact: dict[str, str]
    scaling: dict[str, str]
    fixed: NotRequired[dict[str, str]]
    masks: NotRequired[dict[str, str]]
    operations: list[str]


class ConversionFacts(TypedDict, total=False):
    """Facts that a conversion reports; each format has some of the keys."""

    precision: str
    ranges: str | None
    calibration: CalibrationFacts
    stability: JsonObject
    float_part: FloatPartFacts
    cut: JsonObject
    ops: Mapping[str, object]
    verified: Verification
    reduce_range: bool
    float32_bytes: int
    degradation: float
    degradation_interval: list[float]
    degradation_note: str
    left_in_float: list[str]
    tried: list[dict[str, float]]
    raised: dict[str, str]
    sensitivities: JsonObject
    latency: JsonObject
    # LiteRT and StableHLO
    batch_size: int
    stablehlo_version: str
    rounded: dict[str, str]
    dense_scales: JsonObject
    weight_scales: JsonObject
    # ONNX and TensorRT
    opset: int
    rounding: JsonObject
    kernels: list[str]
    kernels_in_4_bits: list[str]
    levels: dict[str, int]
    onnx: Verification
    profile: str
    tag: JsonObject
    layers: JsonObject
    timing_cache: JsonObject | None
    calibrated: JsonObject
    # OpenVINO
    computed_in: str
    layers_in_8_bits: list[str]
    preset: str
    attention: bool
    bias_correction: JsonObject
    activation_ranges: JsonObject
