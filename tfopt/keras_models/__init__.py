"""Keras 2 and Keras 3 models: load, save, and inspect layers and weights.

May import `tfopt.artifacts` and what is below it. The functions of `tfopt.keras_models.io` can be called from here.
"""

from tfopt.keras_models.io import KerasObject as KerasObject
from tfopt.keras_models.io import check_input_names as check_input_names
from tfopt.keras_models.io import check_weights as check_weights
from tfopt.keras_models.io import input_names as input_names
from tfopt.keras_models.io import is_keras_2 as is_keras_2
from tfopt.keras_models.io import library as library
from tfopt.keras_models.io import load as load
from tfopt.keras_models.io import outputs_by_name as outputs_by_name
from tfopt.keras_models.io import pack_inputs as pack_inputs
from tfopt.keras_models.io import place_saved_model as place_saved_model
from tfopt.keras_models.io import save as save
from tfopt.keras_models.io import served_names as served_names
from tfopt.keras_models.io import serving_function as serving_function
